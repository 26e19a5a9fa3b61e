package leasepage

import (
	"maps"
	"slices"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
)

// align lays the clocks of all processes on one axis. That is the leader's clock, in
// each term: when it counts a grant, it knows that the voter has read its own clock
// between the sending of the probe and the counting. The next leader goes on from where
// the leader before has last seen it.
func align(tracks []*track) {
	c := census{grants: make(map[granting]*track), placed: make(map[*track]bool)}
	terms := make(map[uint64]*track)
	for _, t := range tracks {
		for _, g := range t.incarnations {
			c.grants[granting{t.p.Start.ID, g}] = t
		}
		for i := range t.leases { // a sole voter counts nobody
			terms[t.leases[i].term] = t
		}
		for term := range t.counts {
			terms[term] = t
		}
	}
	for _, term := range slices.Sorted(maps.Keys(terms)) {
		c.reign(tracks, terms[term], term)
	}
	for _, t := range tracks {
		if !c.placed[t] {
			c.guess(tracks, t)
		}
	}
}

// census is an alignment under way.
type census struct {
	grants map[granting]*track // whose grants are whose
	placed map[*track]bool
	end    int64 // of all that is placed
	done   []ended
}

// granting names the process that has granted.
type granting struct{ id, incarnation uint64 }

// ended is where reads have ended under a lease.
type ended struct {
	term   uint64
	usable int64
}

// reign lays the clocks of those that were counted in a term on the leader's.
func (c *census) reign(tracks []*track, leader *track, term uint64) {
	counts := leader.counts[term]
	at := leader.begins(term)
	if !c.placed[leader] && !c.fromVoter(leader, counts) {
		c.guess(tracks, leader)
	}
	c.handOver(leader, at, term)
	best := make(map[*track]*leaderlease.TraceEvent)
	for _, e := range counts {
		v := c.grants[granting{e.Peer, e.Number}]
		if v == nil || v == leader {
			continue
		}
		b := best[v]
		if b != nil && e.At.Sub(b.Instant) > leader.p.Start.Duration {
			c.tie(leader, v, b)
			b = nil
		}
		if b == nil || e.At-e.Instant < b.At-b.Instant {
			best[v] = e
		}
	}
	for v, e := range best {
		c.tie(leader, v, e)
	}
	if n := len(counts); n > 0 {
		at = max(at, counts[n-1].At)
	}
	c.over(leader, at, term)
}

// begins returns when the first of what is known of a reign was sent.
func (t *track) begins(term uint64) core.Instant {
	at := core.Forever
	for _, e := range t.counts[term] {
		at = min(at, e.Instant)
	}
	for i := range t.leases {
		if s := &t.leases[i]; s.term == term {
			at = min(at, s.from)
		}
	}
	return at
}

// over ends a reign with its last lease: from there on the leader's clock is one of many.
func (c *census) over(leader *track, last core.Instant, term uint64) {
	for i := range leader.leases {
		if s := &leader.leases[i]; s.term == term {
			on, _ := leader.axis.place(s.usable)
			c.done = append(c.done, ended{term, on})
			last = max(last, s.end)
		}
	}
	leader.axis.keep(last)
	on, _ := leader.axis.place(last)
	c.end = max(c.end, on)
}

// handOver makes the leader's clock the axis from an instant on. It goes by the order
// that is known: reads under older leases end before somebody else leads. As far as
// clocks leave that open, the new leader comes after them.
func (c *census) handOver(leader *track, at core.Instant, term uint64) {
	on, fuzz := leader.axis.place(at)
	for _, d := range c.done {
		if d.term < term && d.usable > on && d.usable <= on+fuzz {
			on = d.usable
		}
	}
	if len(c.done) == 0 {
		fuzz = 0 // nothing is before it
	}
	leader.axis.tie(knot{at: at, on: on, fuzz: fuzz, leads: true})
}

// tie lays a voter's clock on the leader's by one grant.
func (c *census) tie(leader, voter *track, e *leaderlease.TraceEvent) {
	half := (e.At - e.Instant) / 2
	on, _ := leader.axis.place(e.Instant + half)
	voter.axis.tie(knot{at: e.Reading, on: on, fuzz: int64(half)})
	c.placed[voter] = true
}

// fromVoter places a leader that nobody has counted before by a voter that somebody has.
func (c *census) fromVoter(leader *track, counts []*leaderlease.TraceEvent) bool {
	for _, e := range counts {
		v := c.grants[granting{e.Peer, e.Number}]
		if v == nil || !c.placed[v] {
			continue
		}
		on, fuzz := v.axis.place(e.Reading)
		half := (e.At - e.Instant) / 2
		on -= int64(e.Instant + half - leader.first)
		leader.axis.tie(knot{at: leader.first, on: on, fuzz: fuzz + int64(half)})
		c.placed[leader] = true
		return true
	}
	return false
}

// guess places a process where it was last, or else by what came before it: it begins
// where its member's process before has ended, or all that is placed.
func (c *census) guess(tracks []*track, t *track) {
	early := t.first.Add(-t.p.Start.Duration) // what it tells of first may have begun before
	if t.seed.at != 0 {
		t.axis.tie(knot{at: early, on: t.seed.on - int64(t.seed.at-early), fuzz: t.seed.fuzz})
		c.placed[t] = true
		return
	}
	on, before := c.end, false
	for _, o := range tracks {
		if o == t {
			break
		}
		if o.p.Start.ID == t.p.Start.ID && c.placed[o] {
			on, _ = o.axis.place(o.last)
			before = true
		}
	}
	t.loose = before || len(c.placed) > 0
	if !t.loose {
		on = int64(t.first)
	}
	t.axis.tie(knot{at: early, on: on - int64(t.first-early)})
	c.placed[t] = true
	end, _ := t.axis.place(t.last)
	c.end = max(c.end, end)
}
