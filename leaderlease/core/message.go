package core

import "time"

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
