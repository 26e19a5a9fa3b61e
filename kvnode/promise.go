package kvnode

import (
	"time"

	"github.com/leaderlease/go/leaderlease/clock"
)

const (
	// shortPromise is the least default of LeaseDuration, and leastBeats how many heartbeats it
	// has at least. Shorter: a lease that is lost each time heartbeats are late. Longer: a
	// leader that dies is replaced later.
	shortPromise = 250 * time.Millisecond
	leastBeats   = 5
	// wideMargin is what is left for steps of clocks, stops of machines that nobody tells of and
	// errors of readings, together with a rate that is wrong: docs/clocks.md.
	wideMargin = 100 * time.Millisecond
	// formerTick is the default of TickInterval of former versions. Their members make no
	// promise that is longer than their own, which was an election timeout less that.
	formerTick = 100 * time.Millisecond
)

// Lease returns the duration of the promises that this member asks for as leader, and the
// margin in which its lease serves no read. It expects the other defaults to be filled in.
//
// By default promises are short: a leader that dies is replaced when the promise to it has
// ended. Where the clock does not count the time in which the machine sleeps they are as
// long as in former versions, so that there is more left for what the clock does not tell.
//
// Who gives one of the two gets another that goes with it, wherever former versions had one:
// a wide margin has a longer promise, and a short promise a margin that leaves two heartbeats.
func (c *Config) Lease() (duration, margin time.Duration) {
	if duration = c.LeaseDuration; duration == 0 {
		tick, most := max(c.TickInterval, min(formerTick, c.ElectionTimeout/minElectionTicks)), min(c.MaxClockSkew, c.ElectionTimeout)
		duration = max(c.ElectionTimeout.Truncate(tick)-tick, most+2*c.TickInterval)
		// Ticks that are longer than formerTick, or do not go into the timeout, leave less of it.
		duration = min(duration, c.ElectionTimeout.Truncate(c.TickInterval)-c.TickInterval)
		if c.countsSuspend() {
			duration = min(duration, max(shortPromise, leastBeats*c.TickInterval, most*5/2))
		}
	}
	if margin = c.MaxClockSkew; margin == 0 {
		margin = max(duration/5, min(duration*2/5, wideMargin, duration-2*c.TickInterval))
	}
	return duration, margin
}

// countsSuspend is so of clocks that are exact besides: those in steps of milliseconds are
// stand-ins that do not count it.
func (c *Config) countsSuspend() bool {
	own := c.Clock
	if own == nil {
		own = clock.System()
	}
	return clock.Describe(own).CountsSuspend
}
