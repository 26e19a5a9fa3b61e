package size

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/bench/internal/load"
)

// A stall counts for each request that was due in it, not for one alone, and answers that
// take longer than it is to the next request make no stall.
func TestAStallCountsForAllThatItHoldsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally, end, begun := load.NewTally(), make(chan struct{}), time.Now()
		time.AfterFunc(10*time.Second-time.Millisecond, func() { close(end) })
		paced(t.Context(), end, tally, func(context.Context) error {
			time.Sleep(time.Until(begun.Add(time.Second)))
			time.Sleep(2 * probeEvery)
			return nil
		})
		if tally.Done != 1000 {
			t.Errorf("%d requests in 10 s, want one each 10 ms", tally.Done)
		}
		// A tenth of all were due in the stall: half of them waited for half of it.
		for q, want := range map[float64]time.Duration{1: 1020 * time.Millisecond, 0.95: 520 * time.Millisecond, 0.5: 2 * probeEvery} {
			if got := tally.Quantile(q); got.Round(10*time.Millisecond) != want {
				t.Errorf("quantile %v = %v, want %v", q, got, want)
			}
		}
	})
}

// What fails late is a stall, too.
func TestAFailureIsNoSmallLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally, end := load.NewTally(), make(chan struct{})
		paced(t.Context(), end, tally, func(ctx context.Context) error {
			if !closed(end) {
				close(end)
			}
			<-ctx.Done()
			return errors.New("no answer")
		})
		if tally.Failed != 1 || tally.Quantile(1) < probePatience-time.Second {
			t.Errorf("%d failed, the longest after %v, want 1 after %v", tally.Failed, tally.Quantile(1), probePatience)
		}
	})
}
