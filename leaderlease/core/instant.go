package core

import (
	"math"
	"time"
)

// Instant is a reading of one node's monotonic clock, in nanoseconds since an
// origin that only this node knows. It must not be compared with an Instant of
// another node, stored across a restart, or turned into a date.
//
// A valid reading is positive and below 2^62, which is 146 years. Other values
// mean that the clock could not be read; whoever holds such a value has no lease
// and makes no promise.
type Instant int64

// Forever is later than every reading. It is the leader's own promise to
// itself: it cannot vote for another node without giving its lease up first.
const Forever Instant = math.MaxInt64

// maxReading bounds what a clock may show and what is added to it, so that the sum
// of both never reaches Forever.
const maxReading Instant = 1 << 62

// Valid reports whether i is a reading at all.
func (i Instant) Valid() bool { return i > 0 && i < maxReading }

// Add returns i moved by d. It saturates at Forever and never wraps, so that a
// hostile or absurd duration cannot turn a late instant into an early one.
func (i Instant) Add(d time.Duration) Instant {
	if i == Forever {
		return Forever
	}
	sum := i + Instant(d)
	if d > 0 && sum < i {
		return Forever
	}
	if d < 0 && sum > i {
		return math.MinInt64
	}
	return sum
}

// Sub returns the time from o to i, saturated at the ends of time.Duration.
func (i Instant) Sub(o Instant) time.Duration {
	d := i - o
	switch {
	case i >= o && d < 0:
		return math.MaxInt64
	case i < o && d > 0:
		return math.MinInt64
	default:
		return time.Duration(d)
	}
}

// Before reports whether i is earlier than o.
func (i Instant) Before(o Instant) bool { return i < o }

// After reports whether i is later than o.
func (i Instant) After(o Instant) bool { return i > o }
