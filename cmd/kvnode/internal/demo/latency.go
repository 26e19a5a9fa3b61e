package demo

import (
	"slices"
	"time"
)

// latencies are how long requests took.
type latencies []time.Duration

// quantile returns the value that a share q of all does not exceed.
func (l latencies) quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// short rounds for a reader.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}
