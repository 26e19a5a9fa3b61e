package core

import (
	"math"
	"time"
)

// Instant is a reading of one node's monotonic clock, in nanoseconds since an origin that only this
// node knows. It must not be compared with an Instant of another node, stored across a restart, or
// turned into a date.
//
// A valid reading is positive and below 2^62, which is 146 years. Any other value means that the
// clock could not be read. A node with such a reading has no lease and makes no promise.
type Instant int64

// Forever is later than every reading. The leader's promise to itself ends then, since the leader gives its lease
// up before it votes for another node. The release of ProcessDied covers all probes up to then.
const Forever Instant = math.MaxInt64

// maxReading bounds a reading, and Lease.shift, so that their sum never reaches Forever.
const maxReading Instant = 1 << 62

// Valid reports whether i is a reading.
func (i Instant) Valid() bool { return i > 0 && i < maxReading }

// Add returns i moved by d. It saturates at Forever and never wraps, so that a hostile duration
// cannot turn a late instant into an early one.
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

// Probe rides on a heartbeat and asks its receiver for a promise (L1).
type Probe struct {
	// Sent is the leader's clock just before the heartbeat leaves. Only the leader interprets it; the
	// voter hands it back.
	Sent Instant
	// Duration is the length of the promise that the leader asks for.
	Duration time.Duration
}

// Grant rides on a heartbeat response and reports a promise (V2). The bytes of a probe, sent back,
// are no grant.
type Grant struct {
	// Sent is the newest Probe.Sent for which the voter has made a promise.
	Sent Instant
	// Duration is the length of the promise. The voter counts it by its own clock from the arrival
	// of the probe, hence from later than Sent.
	Duration time.Duration
	// Reading is the voter's clock when the grant left. The leader uses it only to watch the rate of
	// that clock, never as a point in time.
	Reading Instant
	// Incarnation identifies the run of the voter's clock.
	Incarnation Incarnation
}

// Incarnation identifies one run of one node's clock: that of a process, up to the next step or
// disruption. Only readings of one run are comparable. The first one of a process is random, because
// the clock of each process may begin at the same reading. A valid one is from 1 to 2^63 − 1.
type Incarnation uint64

// Next returns the incarnation that follows a step or a disruption of the clock.
func (i Incarnation) Next() Incarnation { return i%Incarnation(Forever) + 1 }

// Release is the statement of a leader that it relies on no probe of Term sent at or before At (L6).
// It stays true forever, so it may be delivered late, twice or never.
type Release struct {
	Term uint64
	At   Instant
}
