package kvnode

import (
	"testing"
	"time"
)

// Whoever has to make room is told how much.
func TestAFullDiskSaysHowMuchIsMissing(t *testing.T) {
	var d disks
	log := &lines{}
	inCluster(t, 1, func(c *Config) { d.use(c); c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		n := c.leader()
		d.fill(n)
		_ = c.untilFull(n)
		time.Sleep(time.Second)
		if got := log.count(`needed_bytes=1048576`); got == 0 {
			t.Error("it is not said that the log needs 1 MiB, a segment")
		}
		d.free(n)
	})
}

func TestMissing(t *testing.T) {
	for _, tc := range []struct {
		name             string
		free, size, want int64
	}{
		{"no byte free", 0, 100, 100},
		{"one too few", 99, 100, 1},
		{"enough", 100, 100, 0},
		{"more than enough", 500, 100, 0},
	} {
		got := missing(tc.free, true, tc.size)
		if len(got) != 6 || got[1] != tc.size || got[3] != tc.free || got[5] != tc.want {
			t.Errorf("missing() with %s = %v, want %d", tc.name, got, tc.want)
		}
	}
	if got := missing(0, false, 100); len(got) != 2 {
		t.Errorf("missing() where nobody knows what is free = %v, want what is needed alone", got)
	}
}
