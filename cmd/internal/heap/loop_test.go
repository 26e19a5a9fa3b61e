package heap

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A process at rest gives back what it holds at the first decision that finds it so, each fifth
// look, and not again what stays. The collector is told nothing twice, and afterwards what it was
// told before.
func TestAProcessAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		now := sample{live: 10 * mib, held: 100 * mib, allocated: 1000 * mib}
		var looked, gave []time.Duration
		var limits []int64
		var percents []int
		limit, percent := int64(7), 77
		of := system{
			look: func() sample {
				looked = append(looked, time.Since(begin))
				if time.Since(begin) < 7*time.Second {
					now.allocated += 20 * mib // it still loads
				}
				return now
			},
			giveBack: func(_ context.Context, s sample) {
				gave = append(gave, time.Since(begin))
				now.held = s.live + 20*mib
			},
			setLimit: func(bytes int64) (was int64) {
				if was = limit; bytes >= 0 {
					limits, limit = append(limits, bytes), bytes
				}
				return was
			},
			setPercent: func(p int) (was int) {
				percents, was, percent = append(percents, p), percent, p
				return was
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour-1)
		defer cancel()
		keep(ctx, 1000*mib, of)
		if want := []time.Duration{15 * time.Second}; !slices.Equal(gave, want) {
			t.Errorf("it gives back at %v, want %v", gave, want)
		}
		if want := int(time.Hour/every) + len(gave); len(looked) != want {
			t.Errorf("it looks %d times in an hour, want %d", len(looked), want)
		}
		if want := []int64{(&keeper{memory: 1000 * mib}).limit(now), 7}; !slices.Equal(limits, want) {
			t.Errorf("the limits are %d, want %d", limits, want)
		}
		if want := []int{100, 100, 77}; !slices.Equal(percents, want) {
			t.Errorf("the collector is told %d, want %d", percents, want)
		}
	})
}
