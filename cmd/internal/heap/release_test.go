package heap

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestMemoryIsGivenBackInSteps(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, tc := range []struct {
		name       string
		free, stop uint64 // no more goes below stop
		after      int    // steps, after which ctx ends
		left       uint64
		steps      int
	}{
		{"all that may go", 100 * mib, 0, 99, 10 * mib, 6},
		{"little", 9 * mib, 0, 99, 9 * mib, 0},
		{"some does not go", 100 * mib, 68 * mib, 99, 68 * mib, 3},
		{"the end of the process", 100 * mib, 0, 2, 68 * mib, 2},
	} {
		steps, left := 0, tc.free
		release(ctx, 10*mib, func() uint64 { return left }, func(n uint64) {
			if n > step {
				t.Errorf("%s: %d bytes at a time, want %d at most", tc.name, n, step)
			}
			if left = max(left-n, tc.stop); steps+1 == tc.after {
				cancel()
			}
			steps++
		})
		if left != tc.left || steps != tc.steps {
			t.Errorf("%s: %d bytes are left after %d steps, want %d after %d", tc.name, left, steps, tc.left, tc.steps)
		}
	}
}

// The runtime does what take takes it for.
func TestTakeGivesBack(t *testing.T) {
	func() {
		pages := make([][]byte, 8<<10)
		for i := range pages {
			pages[i] = make([]byte, 16<<10)
		}
		runtime.KeepAlive(pages)
	}()
	runtime.GC()
	runtime.GC()
	release(t.Context(), least, free, take)
	if n := free(); n > 2*least {
		t.Errorf("%d bytes are free and not given back, want %d at most", n, least)
	}
	take(mib) // the runtime may have given all back by itself
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		t.Errorf("the limit is %d afterwards, want none", limit)
	}
}
