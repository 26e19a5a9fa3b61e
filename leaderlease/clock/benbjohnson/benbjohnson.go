// Package benbjohnson lets a github.com/benbjohnson/clock drive leases, for
// programs and tests that already inject one. New tests are better off with
// testing/synctest or a clock of their own.
package benbjohnson

import (
	"time"

	bbj "github.com/benbjohnson/clock"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// firstReading keeps readings valid when a promise is taken off a young one.
const firstReading = core.Instant(time.Hour)

// Clock reads a benbjohnson clock as a lease clock.
//
// It is no better than the clock beneath. The real one stops while the machine
// is suspended, so assumption A2 does not hold there. A Mock must not be set
// backwards: the Lease may miss a small step, and the lease then lasts too long.
type Clock struct {
	source bbj.Clock // immutable
	base   time.Time // immutable; keeps the monotonic reading, if there is one
}

// From returns a lease clock that reads c. Its readings start at one hour,
// whatever date c shows, and follow the monotonic part of c's times where they
// have one, so that setting the wall clock does not move them.
func From(c bbj.Clock) *Clock { return &Clock{source: c, base: c.Now()} }

// Now implements clock.Clock. It returns zero if the source was set more than an
// hour before its time at From, or further ahead than an Instant can express.
func (c *Clock) Now() core.Instant {
	now := firstReading.Add(c.source.Now().Sub(c.base))
	if !now.Valid() {
		return 0
	}
	return now
}

// Info implements clock.Described.
func (c *Clock) Info() clock.Info {
	return clock.Info{
		Name:    "benbjohnson",
		Warning: "the benbjohnson clock does not count time in which the machine is suspended (assumption A2)",
	}
}
