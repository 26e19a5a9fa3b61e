package leasepage

import (
	"maps"
	"slices"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// align places the clocks of all processes on one axis. In each term the axis is the leader's
// clock. A grant that the leader counts places the voter: it read its own clock between the
// sending of the probe and the arrival of the grant. The next leader starts where its clock was
// placed as a voter.
func align(timelines []*timeline) {
	c := aligner{grants: make(map[grantor]*timeline), placed: make(map[*timeline]bool)}
	terms := make(map[uint64]*timeline)
	for _, t := range timelines {
		for _, g := range t.incarnations {
			c.grants[grantor{t.p.Start.ID, g}] = t
		}
		for i := range t.leases { // a sole voter counts no grants
			terms[t.leases[i].term] = t
		}
		for term := range t.counts {
			terms[term] = t
		}
	}
	for _, term := range slices.Sorted(maps.Keys(terms)) {
		c.alignTerm(timelines, terms[term], term)
	}
	for _, t := range timelines {
		if !c.placed[t] {
			c.placeByOrder(timelines, t)
		}
	}
}

// aligner is the state of align.
type aligner struct {
	grants map[grantor]*timeline // the process that made a grant
	placed map[*timeline]bool
	end    int64 // the latest time of the axis at which anything placed ends
	done   []leaseEnd
}

// grantor is how a grant names its process.
type grantor struct{ id, incarnation uint64 }

// leaseEnd is where the reads under a lease ended on the axis.
type leaseEnd struct {
	term   uint64
	usable int64
}

// alignTerm places the voters that granted the leader of a term a lease. Of each Duration it
// takes the grant that took the least time, since that has the smallest error.
func (c *aligner) alignTerm(timelines []*timeline, leader *timeline, term uint64) {
	counts := leader.counts[term]
	at := leader.begins(term)
	if !c.placed[leader] && !c.placeByVoter(leader, counts) {
		c.placeByOrder(timelines, leader)
	}
	c.startTerm(leader, at, term)
	best := make(map[*timeline]*leasetrace.Event)
	for _, e := range counts {
		v := c.grants[grantor{e.Peer, e.Number}]
		if v == nil || v == leader {
			continue
		}
		b := best[v]
		if b != nil && e.At.Sub(b.Instant) > leader.p.Start.Duration {
			c.placeVoter(leader, v, b)
			b = nil
		}
		if b == nil || e.At-e.Instant < b.At-b.Instant {
			best[v] = e
		}
	}
	for v, e := range best {
		c.placeVoter(leader, v, e)
	}
	if n := len(counts); n > 0 {
		at = max(at, counts[n-1].At)
	}
	c.endTerm(leader, at, term)
}

// begins returns the first instant that is known of a term of leadership.
func (t *timeline) begins(term uint64) core.Instant {
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

// endTerm ends a term with its last lease. From there on the leader's clock is not the axis.
func (c *aligner) endTerm(leader *timeline, last core.Instant, term uint64) {
	for i := range leader.leases {
		if s := &leader.leases[i]; s.term == term {
			on, _ := leader.axis.place(s.usable)
			c.done = append(c.done, leaseEnd{term, on})
			last = max(last, s.end)
		}
	}
	on, fuzz := leader.axis.place(last)
	leader.axis.add(anchor{at: last, on: on, fuzz: fuzz})
	c.end = max(c.end, on)
}

// startTerm makes the leader's clock the axis from an instant on. Reads under older leases end
// before another member leads: as far as the error of the clocks allows, the term is placed
// after them.
func (c *aligner) startTerm(leader *timeline, at core.Instant, term uint64) {
	on, fuzz := leader.axis.place(at)
	for _, d := range c.done {
		if d.term < term && d.usable > on && d.usable <= on+fuzz {
			on = d.usable
		}
	}
	if len(c.done) == 0 {
		fuzz = 0 // the axis begins here
	}
	leader.axis.add(anchor{at: at, on: on, fuzz: fuzz, leads: true})
}

// placeVoter places a voter's clock by one of its grants.
func (c *aligner) placeVoter(leader, voter *timeline, e *leasetrace.Event) {
	half := (e.At - e.Instant) / 2
	on, _ := leader.axis.place(e.Instant + half)
	voter.axis.add(anchor{at: e.Reading, on: on, fuzz: int64(half)})
	c.placed[voter] = true
}

// placeByVoter places a leader by a voter that is placed, if it counted a grant of one.
func (c *aligner) placeByVoter(leader *timeline, counts []*leasetrace.Event) bool {
	for _, e := range counts {
		v := c.grants[grantor{e.Peer, e.Number}]
		if v == nil || !c.placed[v] {
			continue
		}
		on, fuzz := v.axis.place(e.Reading)
		half := (e.At - e.Instant) / 2
		on -= int64(e.Instant + half - leader.first)
		leader.axis.add(anchor{at: leader.first, on: on, fuzz: fuzz + int64(half)})
		c.placed[leader] = true
		return true
	}
	return false
}

// placeByOrder places a process where the picture before had it, or else where its member's
// previous process ends, or else where all that is placed ends.
func (c *aligner) placeByOrder(timelines []*timeline, t *timeline) {
	early := t.first.Add(-t.p.Start.Duration) // the first lease or promise may begin earlier
	if t.placed.at != 0 {
		t.axis.add(anchor{at: early, on: t.placed.on - int64(t.placed.at-early), fuzz: t.placed.fuzz})
		c.placed[t] = true
		return
	}
	on, before := c.end, false
	for _, o := range timelines {
		if o == t {
			break
		}
		if o.p.Start.ID == t.p.Start.ID && c.placed[o] {
			on, _ = o.axis.place(o.last)
			before = true
		}
	}
	t.loose = before || len(c.placed) > 0
	if !t.loose { // it is the first
		on = int64(t.first)
	}
	t.axis.add(anchor{at: early, on: on - int64(t.first-early)})
	c.placed[t] = true
	end, _ := t.axis.place(t.last)
	c.end = max(c.end, end)
}
