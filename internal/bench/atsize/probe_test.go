package atsize

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/bench/load"
)

// A stall counts for each request that was due in it, not for one alone.
func TestAStallCountsForAllThatItHoldsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally, end := load.NewTally(), make(chan struct{})
		go func() {
			time.Sleep(10*time.Second - time.Millisecond)
			close(end)
		}()
		stalled := false
		paced(t.Context(), end, tally, func(context.Context) error {
			if !stalled {
				stalled = true
				time.Sleep(time.Second)
			}
			return nil
		})
		if tally.Done != 1000 {
			t.Errorf("%d requests in 10 s, want one each 10 ms", tally.Done)
		}
		if got := tally.Quantile(1); got.Round(10*time.Millisecond) != time.Second {
			t.Errorf("the longest took %v, want 1 s", got)
		}
		// A tenth of all were due in the stall: half of them waited for half of it.
		if got := tally.Quantile(0.95).Round(50 * time.Millisecond); got != 500*time.Millisecond {
			t.Errorf("p95 = %v, want half a second", got)
		}
	})
}

// What fails late is a stall, too.
func TestAFailureIsNoSmallLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally, end := load.NewTally(), make(chan struct{})
		paced(t.Context(), end, tally, func(ctx context.Context) error {
			close(end)
			<-ctx.Done()
			return errors.New("nobody answers")
		})
		if tally.Failed != 1 || tally.Quantile(1) < probePatience-time.Second {
			t.Errorf("%d failed, the longest after %v, want 1 after %v", tally.Failed, tally.Quantile(1), probePatience)
		}
	})
}
