package leasepage

import (
	"cmp"
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

// alignTerm places the voters by the grants that the leader of a term counted. In each Duration it
// uses the one with the shortest round trip, since that has the smallest error.
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

// driftPart bounds how far two clocks drift apart that are not compared for a while: by one
// part in driftPart of that time. That part is twice chrony's default maximum slew rate
// (MaxDriftPPM).
const driftPart = 6

// axis places readings of a process's clock on the axis of the picture.
type axis struct{ anchors []anchor }

// anchor says that the reading at is the time on of the axis, with an error of at most fuzz.
// If leads is set, the clock is the axis from there to the next anchor.
type anchor struct {
	at       core.Instant
	on, fuzz int64
	leads    bool
}

// place returns where a reading is on the axis: in proportion between two anchors, and beyond
// them as if the clock ran at the rate of the axis.
func (a *axis) place(at core.Instant) (on, fuzz int64) {
	i, exact := slices.BinarySearchFunc(a.anchors, at, func(k anchor, at core.Instant) int { return cmp.Compare(k.at, at) })
	switch {
	case len(a.anchors) == 0:
		return int64(at), 0
	case exact:
		return a.anchors[i].on, a.anchors[i].fuzz
	case i == 0:
		k := a.anchors[0]
		return k.on - int64(k.at-at), k.fuzz + int64(k.at-at)/driftPart
	case a.anchors[i-1].leads:
		k := a.anchors[i-1]
		return k.on + int64(at-k.at), 0
	case i == len(a.anchors):
		k := a.anchors[i-1]
		return k.on + int64(at-k.at), k.fuzz + int64(at-k.at)/driftPart
	}
	b, n := a.anchors[i-1], a.anchors[i]
	share := float64(at-b.at) / float64(n.at-b.at)
	return b.on + int64(share*float64(n.on-b.on)),
		min(b.fuzz+int64(at-b.at)/driftPart, n.fuzz+int64(n.at-at)/driftPart)
}

// add adds an anchor behind all others; an earlier one is ignored. The axis does not run
// backwards.
func (a *axis) add(k anchor) {
	if n := len(a.anchors); n > 0 {
		if k.at <= a.anchors[n-1].at {
			return
		}
		k.on = max(k.on, a.anchors[n-1].on)
	}
	a.anchors = append(a.anchors, k)
}
