package clock

import (
	"slices"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

// SlowFactor is the cost of a reading, in multiples of time.Now, above which
// Info.Slow is set. A reading through the vDSO costs about as much as time.Now
// or less, a system call four to six times as much; in between there is
// nothing to confuse.
const SlowFactor = 3

// The median of many short batches is not moved by a preemption that hits a
// few of them.
const (
	batches   = 33
	batchSize = 32
)

// measure returns the median cost of a reading of c and whether it is slow.
func measure(c Clock) (time.Duration, bool) {
	cost, reference := costOf(c), costOf(wallClock{})
	return cost, cost > SlowFactor*reference
}

func costOf(c Clock) time.Duration {
	costs := make([]time.Duration, batches)
	for i := range costs {
		start := time.Now()
		for range batchSize {
			c.Now()
		}
		costs[i] = time.Since(start) / batchSize
	}
	slices.Sort(costs)
	return costs[batches/2]
}

// wallClock is what costs are compared with. It is not a lease clock.
type wallClock struct{}

func (wallClock) Now() core.Instant { return core.Instant(time.Now().UnixNano()) }
