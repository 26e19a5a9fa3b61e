package leasepage

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
)

// track is what the events of one process say, by its own clock.
type track struct {
	p           *told
	names       map[uint64]string
	first, last core.Instant
	whole       bool // its first event is there

	leases, promises []span
	renewals         []core.Instant // in pairs: sent, renewed
	flags            []mark
	pauses           [][2]core.Instant
	reads            []*note
	gaps             []core.Instant                       // before which events are missing, those not yet reached
	counts           map[uint64][]*leaderlease.TraceEvent // of grants, by term
	incarnations     []uint64                             // of the process, as its grants show

	role     raft.StateType
	held     bool         // the last of leases may be renewed
	promised core.Instant // the probe that the last of promises answers
	released bool         // the next lease begins by a release
	voters   uint64
	handed   core.Instant // when it handed its lease over
	left     bool         // it has said that it stops
	said     map[string]core.Instant

	axis     axis
	seed     knot  // where an earlier picture had it, zero for none
	zero     int64 // where the picture begins on the axis
	loose    bool
	replaced bool // another process of the member follows
}

// span is a lease, or a promise to peer.
type span struct {
	peer, term               uint64
	from, known, usable, end core.Instant
	why                      string
	released                 bool
	sole                     bool // the holder is the only voter
}

// mark is a flag by the clock of its process.
type mark struct {
	at         core.Instant
	kind, text string
}

// follow reads the trace of a process.
func follow(p *told, names map[uint64]string) *track {
	t := &track{
		p: p, names: names, first: max(p.Start.At, p.from), last: p.Start.At,
		counts: make(map[uint64][]*leaderlease.TraceEvent), said: make(map[string]core.Instant),
	}
	if t.whole = len(p.Events) == 0 || p.Events[0].Seq == 1; t.whole {
		t.starts()
	} else if i := slices.IndexFunc(p.Events, func(e leaderlease.TraceEvent) bool { return e.At.Valid() }); i >= 0 {
		t.first, t.last = max(p.Events[i].At, p.from), p.Events[i].At
	}
	for i := range p.notes {
		t.note(&p.notes[i])
	}
	for i := range p.Events {
		t.take(&p.Events[i])
	}
	t.last = max(t.last, p.reading)
	if n := len(t.leases); n > 0 && t.leases[n-1].end == core.Forever { // it is known up to here
		t.leases[n-1].usable, t.leases[n-1].end = t.last, t.last
	}
	return t
}

// take takes the next event.
func (t *track) take(e *leaderlease.TraceEvent) {
	if e.At.Valid() {
		t.pause(e.At)
		t.last = max(t.last, e.At)
	}
	switch e.Kind {
	case leaderlease.TraceView:
		t.view(e)
	case leaderlease.TracePromise:
		t.promise(e)
	case leaderlease.TraceGrant:
		if n := len(t.incarnations); n == 0 || t.incarnations[n-1] != e.Number {
			t.incarnations = append(t.incarnations, e.Number)
		}
	case leaderlease.TraceCount:
		if e.Instant <= e.At { // or the clock has gone back
			t.counts[e.Term] = append(t.counts[e.Term], e)
		}
	case leaderlease.TraceRequest:
		t.voided(e)
		t.flag(e)
	default:
		t.flag(e)
	}
}

// pause notes for how long nothing was said, where that says something: who holds a lease
// probes at each tick, and a follower answers, unless nobody leads for a while. Where events
// are missing it is not known.
func (t *track) pause(at core.Instant) {
	missing := false
	for len(t.gaps) > 0 && t.gaps[0] <= at {
		missing = missing || t.gaps[0] > t.last
		t.gaps = t.gaps[1:]
	}
	usual := 10 * t.p.Start.Duration
	if t.held {
		usual = t.p.Start.Duration
		if t.lastLease().sole { // which probes nobody
			usual = math.MaxInt64
		}
	}
	if quiet := at.Sub(t.last); missing {
		t.pauses = append(t.pauses, [2]core.Instant{t.last, at})
	} else if quiet > usual {
		t.mark("paused", fmt.Sprintf("says nothing for %v, as one that is paused", quiet.Round(time.Millisecond)))
		t.pauses = append(t.pauses, [2]core.Instant{t.last, at})
	}
}

// view takes what readers see from here on.
func (t *track) view(e *leaderlease.TraceEvent) {
	s := &t.p.Start
	if e.Status != core.Valid || e.Instant <= 0 {
		t.giveUp(t.last, e.Status)
		return
	}
	next := span{term: e.Term, known: t.last, end: e.Instant, released: t.released, sole: endless(e)}
	if next.sole {
		next.known = max(t.last, t.first)
		next.from, next.usable = next.known, core.Forever
	} else {
		next.from, next.usable = e.Instant.Add(-s.Duration), e.Instant.Add(-s.MaxClockSkew)
		t.renewals = append(t.renewals, next.from, t.last)
	}
	t.released = false
	if !t.held || t.lastLease().term != e.Term {
		t.giveUp(t.last, core.None)
		t.leases, t.held = append(t.leases, next), true
		return
	}
	switch old := t.lastLease(); {
	case t.last <= old.end && old.sole != next.sole: // the number of voters changed from or to one
		old.usable, old.end, next.from = min(old.usable, t.last), t.last, t.last
		if old.sole {
			old.why = "another member votes"
		}
		t.leases = append(t.leases, next)
	case t.last <= old.usable:
		old.usable, old.end = next.usable, next.end
	case t.last <= old.end: // it was in the margin
		old.end, next.from = t.last, t.last
		t.leases = append(t.leases, next)
	default:
		next.from = max(next.from, old.end)
		t.leases = append(t.leases, next)
	}
}

// giveUp ends a lease that has not run out yet.
func (t *track) giveUp(at core.Instant, why core.Status) {
	if !t.held {
		return
	}
	t.held = false
	if l := t.lastLease(); at < l.end {
		l.usable, l.end = min(l.usable, at), at
		if l.why = why.String(); why == core.None {
			l.why = "the next term"
		}
	}
}

func (t *track) lastLease() *span { return &t.leases[len(t.leases)-1] }

// promise takes a promise that was made.
func (t *track) promise(e *leaderlease.TraceEvent) {
	if !e.OK {
		return
	}
	end := e.At.Add(e.Duration)
	t.promised = e.Instant
	if n := len(t.promises); n > 0 {
		if p := &t.promises[n-1]; p.peer == e.Peer && p.term == e.Term && e.At <= p.end {
			p.end = max(p.end, end)
			return
		}
	}
	t.promises = append(t.promises, span{peer: e.Peer, term: e.Term, from: e.At, end: end})
}

// voided ends a promise whose leader has released it.
func (t *track) voided(e *leaderlease.TraceEvent) {
	n := len(t.promises)
	if n == 0 || e.Number == 0 {
		return
	}
	p := &t.promises[n-1]
	if p.term < e.Number || p.term == e.Number && t.promised <= e.Instant {
		p.end = min(p.end, e.At)
	}
}

func hex(id uint64) string { return strconv.FormatUint(id, 16) }

func called(id uint64, names map[uint64]string) string { return cmp.Or(names[id], hex(id)) }

// compareNames puts n2 before n10.
func compareNames(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// seldom reports whether something was not said lately, so that flags do not pile up.
func (t *track) seldom(what string) bool {
	at, ok := t.said[what]
	if ok && t.last.Sub(at) < time.Second {
		return false
	}
	t.said[what] = t.last
	return true
}
