package clock

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

func clocks() map[string]Clock {
	return map[string]Clock{"system": System(), "boottime": Boottime(), "runtime": Runtime()}
}

func TestReadingsArePositiveAndNeverDecrease(t *testing.T) {
	for name, c := range clocks() {
		t.Run(name, func(t *testing.T) {
			last := c.Now()
			if last < firstReading {
				t.Errorf("Now() = %d, want at least %d", last, firstReading)
			}
			for range 100_000 {
				now := c.Now()
				if now < last {
					t.Fatalf("Now() = %d after %d, want no less", now, last)
				}
				last = now
			}
		})
	}
}

// A clock that stood still would keep every lease for ever.
func TestReadingsAdvanceWithTime(t *testing.T) {
	for name, c := range clocks() {
		t.Run(name, func(t *testing.T) {
			const pause = 5 * time.Millisecond
			start := c.Now()
			time.Sleep(pause) // the system's clock is the subject
			if got := c.Now().Sub(start); got < pause {
				t.Errorf("clock advanced %v over a sleep of %v, want no less", got, pause)
			}
		})
	}
}

func TestNowDoesNotAllocate(t *testing.T) {
	for name, c := range clocks() {
		if n := testing.AllocsPerRun(100, func() { c.Now() }); n != 0 {
			t.Errorf("%s: Now() allocates %v times, want 0", name, n)
		}
	}
}

func TestSystemIsOneInstance(t *testing.T) {
	if a, b := System(), System(); a != b {
		t.Errorf("System() = %p, then %p, want one instance", a, b)
	}
}

func TestEveryClockDescribesItself(t *testing.T) {
	for name, c := range clocks() {
		info := Describe(c)
		if info.Name == "" || info.Cost <= 0 {
			t.Errorf("%s: Describe() = %+v, want a name and a cost", name, info)
		}
		if !info.CountsSuspend && info.Warning == "" {
			t.Errorf("%s: Describe() = %+v, want a warning, since assumption A2 does not hold", name, info)
		}
	}
}

// foreignClock is a clock of another package, which says nothing about itself.
type foreignClock struct{}

func (foreignClock) Now() core.Instant { return 1 }

func TestDescribeMeasuresAForeignClock(t *testing.T) {
	info := Describe(foreignClock{})
	if !strings.HasSuffix(info.Name, "foreignClock") || info.CountsSuspend || info.Warning == "" {
		t.Errorf("Describe(foreignClock) = %+v, want its type, no promise and a warning", info)
	}
}

// sluggish takes longer than SlowFactor readings of the wall clock, on any machine.
type sluggish struct{}

func (sluggish) Now() (now core.Instant) {
	for range 4 * SlowFactor {
		now = wallClock{}.Now()
	}
	return now
}

// A busy machine may be slower while it measures the one than while it measures the
// other, but hardly each time.
func TestSlowIsReported(t *testing.T) {
	for c, want := range map[Clock]bool{sluggish{}: true, wallClock{}: false} {
		cost, slow := measure(c)
		for try := 0; slow != want && try < 100; try++ {
			cost, slow = measure(c)
		}
		if slow != want || cost <= 0 {
			t.Errorf("measure(%T) = %v, slow %t, want slow %t", c, cost, slow, want)
		}
	}
}

func TestRuntimeFollowsABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Runtime()
		start := c.Now()
		time.Sleep(time.Hour) // virtual
		if got := c.Now().Sub(start); start != firstReading || got != time.Hour {
			t.Errorf("clock started at %d and advanced %v, want %d and 1h", start, got, firstReading)
		}
	})
}

func TestWarningsAddUp(t *testing.T) {
	var d described
	d.warn("second")
	d.warn("first")
	if got, want := d.Info().Warning, "first; second"; got != want {
		t.Errorf("Warning = %q, want %q", got, want)
	}
}

func TestNoVMClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vmclock0")
	base := newRuntimeClock()
	c, err := WithVMClock(base, path)
	if c != Clock(base) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("WithVMClock(missing) = %T, %v, want the clock itself and fs.ErrNotExist", c, err)
	}
	before := base.info.Warning
	if c := newSystem(base, path); c != Clock(base) || base.info.Warning != before {
		t.Errorf("newSystem(missing) = %T with warning %q, want the clock itself, still %q", c, base.info.Warning, before)
	}
}

// BenchmarkNow compares every clock with time.Now, called the way users call a
// clock: through the interface.
func BenchmarkNow(b *testing.B) {
	arms := []struct {
		name  string
		clock Clock
	}{
		{"vdso", System()},
		{"syscall", Boottime()},
		{"runtime", Runtime()},
		{"time.Now", wallClock{}},
	}
	for _, arm := range arms {
		if arm.name == "vdso" && !isVDSO(arm.clock) {
			continue
		}
		b.Run("clock="+arm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				arm.clock.Now()
			}
		})
		b.Run(fmt.Sprintf("clock=%s/procs=2", arm.name), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					arm.clock.Now()
				}
			})
		})
	}
}

func isVDSO(c Clock) bool {
	name := Describe(c).Name
	return len(name) >= 4 && name[:4] == "vdso"
}
