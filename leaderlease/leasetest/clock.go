package leasetest

import (
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
)

// Clock is a lease clock with an offset and a rate of its own, driven by true
// time that the test controls. It implements clock.Clock. It is not safe for
// concurrent use.
type Clock struct {
	truth func() time.Duration
	// first is the reading at the start of a process.
	first leaderlease.Instant
	// The reading was base when true time was since, and runs at rate from
	// there.
	base    leaderlease.Instant
	since   time.Duration
	rate    float64
	stopped bool
	failed  bool
	marker  uint64
	// within runs once before the next reading of the marker, which comes after a reading of
	// the clock.
	within func()
	// before runs once in the next reading of the clock.
	before func()
}

// NewClock returns a clock that shows offset now and runs at rate 1. truth
// returns true time; it must not go backwards. offset must be positive.
func NewClock(truth func() time.Duration, offset time.Duration) *Clock {
	return &Clock{truth: truth, first: leaderlease.Instant(offset), base: leaderlease.Instant(offset), since: truth(), rate: 1}
}

// Restart makes the clock show its offset again, as clock.System does in each process. Instants of
// two processes of one node overlap and are not comparable. A node restarts its clock with its
// process.
func (c *Clock) Restart() { c.base, c.since = c.first, c.truth() }

// Now implements clock.Clock.
func (c *Clock) Now() leaderlease.Instant {
	if f := c.before; f != nil {
		c.before = nil
		f()
	}
	if c.failed {
		return 0
	}
	return c.reading()
}

func (c *Clock) reading() leaderlease.Instant {
	if c.stopped {
		return c.base
	}
	return c.base.Add(time.Duration(float64(c.truth()-c.since) * c.rate))
}

// rebase makes what the clock shows now its base, before its rate changes.
func (c *Clock) rebase() { c.base, c.since = c.reading(), c.truth() }

// SetRate changes how fast the clock runs from now on: 1.1 gains 10 %.
func (c *Clock) SetRate(rate float64) {
	c.rebase()
	c.rate = rate
}

// Rate returns the rate.
func (c *Clock) Rate() float64 { return c.rate }

// Stop makes the clock stand still, as CLOCK_MONOTONIC does while the machine
// is suspended. For a leader that breaks assumption A2.
func (c *Clock) Stop() {
	c.rebase()
	c.stopped = true
}

// Start lets a stopped clock go on from where it stood.
func (c *Clock) Start() {
	if c.stopped {
		c.since, c.stopped = c.truth(), false
	}
}

// Step moves the clock by d, which may be negative.
func (c *Clock) Step(d time.Duration) {
	c.rebase()
	c.base = c.base.Add(d)
}

// SetFailed makes every reading fail, or lets the clock be read again.
func (c *Clock) SetFailed(failed bool) { c.failed = failed }

// Disrupt changes the clock's disruption marker, as a virtual machine's clock
// does when the machine was restored from a snapshot or moved.
func (c *Clock) Disrupt() { c.marker++ }

// Disruptions implements clock.Disruptable.
func (c *Clock) Disruptions() uint64 {
	if f := c.within; f != nil {
		c.within = nil
		f()
	}
	return c.marker
}

// Info implements clock.Described.
func (c *Clock) Info() clock.Info {
	return clock.Info{Name: "leasetest", CountsSuspend: true, Cost: 1}
}
