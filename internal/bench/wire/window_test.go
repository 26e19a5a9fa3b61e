package wire

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/bench/load"
)

func TestWhatEndsInTheWindowCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w window
		tally, failure := load.NewTally(), errors.New("no")
		done := make(chan time.Duration)
		go func() { done <- w.pass(t.Context(), Times{Warmup: time.Second, Duration: time.Second}) }()
		for _, c := range []struct {
			name               string
			at                 time.Duration
			done, failed, seen int64
		}{
			{"last instant of the warm-up", time.Second - 1, 0, 0, 0},
			{"first instant after it", 2, 1, 1, 1},
			{"last instant that counts", time.Second - 2, 2, 2, 2},
			{"too late: the latency shows", 2, 2, 3, 3},
		} {
			time.Sleep(c.at)
			synctest.Wait()
			w.note(tally, time.Millisecond, nil)
			w.note(tally, 0, failure)
			if tally.Done != c.done || tally.Failed != c.failed || tally.Latency.TotalCount() != c.seen {
				t.Errorf("%s: %d done, %d failed, %d latencies, want %d, %d, %d", c.name, tally.Done, tally.Failed, tally.Latency.TotalCount(), c.done, c.failed, c.seen)
			}
		}
		if took := <-done; took != time.Second || !w.isOver() {
			t.Errorf("the window was open for %v, over %v, want 1s", took, w.isOver())
		}
	})
}

func TestAWindowEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var w window
		if took := w.pass(ctx, Times{Warmup: time.Hour, Duration: time.Hour}); took != 0 || !w.isOver() {
			t.Errorf("pass() took %v of a context that has ended", took)
		}
	})
}
