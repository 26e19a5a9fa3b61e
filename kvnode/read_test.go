package kvnode

import (
	"testing"
	"testing/synctest"
)

// What is checked for a read that is refused costs one that is served nothing.
func TestReadUnderTheLeaseAllocatesNothing(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		synctest.Wait() // all others wait for time, which passes only when this one does, too
		for _, mode := range []ReadMode{ReadLease, ReadSerializable} {
			if n := testing.AllocsPerRun(1000, func() {
				if _, err := leader.Read(t.Context(), mode); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("Read(%v) allocates %v times, want 0", mode, n)
			}
		}
	})
}
