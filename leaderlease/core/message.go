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

// Probe rides on a heartbeat and asks its receiver for a promise (L1).
type Probe struct {
	// Sent is the leader's clock just before the heartbeat leaves. Only the
	// leader may interpret it; the voter hands it back.
	Sent Instant
	// Duration is how long the voter is asked to help nobody else.
	Duration time.Duration
}

// Grant rides on a heartbeat response and says what was promised (V2). An echo
// of a Probe is never a Grant.
type Grant struct {
	// Sent is the newest Probe.Sent that the voter has promised to.
	Sent Instant
	// Duration is what the voter promised, counted by its own clock from the
	// arrival of that probe, hence from later than Sent.
	Duration time.Duration
	// Reading is the voter's clock when the grant left. The leader uses it only
	// to watch how fast that clock runs, never as a point in time.
	Reading Instant
	// Incarnation tells the voter's present clock from every other one.
	Incarnation Incarnation
}

// Incarnation names one run of one node's clock: that of a process, up to the
// next step or disruption. Readings are comparable only within one. It is drawn
// at random, because clocks begin anew with each process, at the same reading. A
// valid one is from 1 to Forever.
type Incarnation uint64

// Next returns the incarnation that follows a step or a disruption of the clock.
func (i Incarnation) Next() Incarnation { return i%Incarnation(Forever) + 1 }

// Release is the leader's word, given with a leadership transfer, that it
// relies on no probe of Term sent at or before At (L6). It stays true forever,
// so it may be delivered late, twice or never.
type Release struct {
	Term uint64
	At   Instant
}
