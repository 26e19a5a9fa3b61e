package kvnode

import "time"

// cadence says when the raft loop ticks. It is the loop's alone.
//
// A member that hears its leader ticks with the heartbeats, which come as often, and so a
// follower at rest is woken half as often: most of what idle members take of a processor goes
// to waking and to sleeping again. A tick waits a little for the heartbeat, and a heartbeat
// that is a little early takes the tick along. What is early does not add up: due
// goes on by whole intervals, and never falls behind the clock.
type cadence struct {
	interval time.Duration
	due      time.Time // of the next tick
	heard    bool      // a heartbeat, at the last tick or since
	now      bool      // the tick goes with the heartbeat that has just come
}

// slackPart is the part of an interval, a fifth, by which a tick may go early with a heartbeat,
// and by which it waits for one. A heartbeat out of both is met by one of the next ticks, since
// each that has waited moves those behind it. Larger: a leader's death shows later, as each tick
// looks for it, and a member that was late takes itself for one that was paused. Smaller: where
// heartbeats are not even, more ticks go by themselves.
const slackPart = 5

func newCadence(interval time.Duration, now time.Time) cadence {
	return cadence{interval: interval, due: now.Add(interval)}
}

// wake is when the tick goes by itself.
func (c *cadence) wake() time.Time {
	if c.heard {
		return c.due.Add(c.interval / slackPart)
	}
	return c.due
}

// beat is told of each heartbeat.
func (c *cadence) beat(now time.Time) {
	c.heard = true
	c.now = !now.Before(c.due.Add(-c.interval / slackPart))
}

// ticked is told of each tick. Ticks that were missed are dropped, not made up for.
func (c *cadence) ticked(now time.Time) {
	waited := c.heard && !c.now
	c.due = c.due.Add(c.interval)
	if waited || c.due.Before(now) {
		c.due = now.Add(c.interval)
	}
	c.heard, c.now = c.now, false
}
