package leasepage

import (
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// timeline is what the events of one process say, by the clock of that process.
type timeline struct {
	p           *history
	names       map[uint64]string
	first, last core.Instant
	whole       bool // the events begin with the process's first one

	leases, promises []span
	renewals         []core.Instant // in pairs: sent, renewed
	flags            []mark
	pauses           [][2]core.Instant
	reads            []*note
	gaps             []core.Instant                 // instants not reached yet, before which events are missing
	counts           map[uint64][]*leasetrace.Event // of grants, by term
	incarnations     []uint64                       // of the process, as its grants name it

	// What the events up to now leave open.
	role     raft.StateType
	held     bool         // the last lease may be renewed
	promised core.Instant // when the probe was sent that the last promise answers
	released bool         // the next lease begins with a release
	voters   uint64
	handed   core.Instant            // when the process handed its lease over
	stops    bool                    // the process said that it stops
	flagged  map[string]core.Instant // when a frequent flag was set last

	axis     axis
	placed   anchor // where the picture before had the process, zero for nowhere
	zero     int64  // where the picture begins on the axis
	loose    bool   // nothing says where on the axis the process belongs
	replaced bool   // another process of the member follows
}

// span is a lease, or a promise to peer.
type span struct {
	peer, term               uint64
	from, known, usable, end core.Instant
	why                      string
	released                 bool
	sole                     bool // the holder is the only voter
}

// mark is a Flag by the clock of its process.
type mark struct {
	at         core.Instant
	kind, text string
}

func readTimeline(p *history, names map[uint64]string) *timeline {
	t := &timeline{
		p: p, names: names, first: max(p.Start.At, p.from), last: p.Start.At,
		counts: make(map[uint64][]*leasetrace.Event), flagged: make(map[string]core.Instant),
	}
	if t.whole = len(p.Events) == 0 || p.Events[0].Seq == 1; t.whole {
		t.flagStart()
	} else if i := slices.IndexFunc(p.Events, func(e leasetrace.Event) bool { return e.At.Valid() }); i >= 0 {
		t.first, t.last = max(p.Events[i].At, p.from), p.Events[i].At
	}
	for i := range p.notes {
		t.addNote(&p.notes[i])
	}
	for i := range p.Events {
		t.addEvent(&p.Events[i])
	}
	t.last = max(t.last, p.reading)
	if n := len(t.leases); n > 0 && t.leases[n-1].end == core.Forever { // it is known up to here
		t.leases[n-1].usable, t.leases[n-1].end = t.last, t.last
	}
	return t
}

func (t *timeline) addEvent(e *leasetrace.Event) {
	if e.At.Valid() {
		t.addPause(e.At)
		t.last = max(t.last, e.At)
	}
	switch e.Kind {
	case leasetrace.KindView:
		t.addView(e)
	case leasetrace.KindPromise:
		t.addPromise(e)
	case leasetrace.KindGrant:
		if n := len(t.incarnations); n == 0 || t.incarnations[n-1] != e.Number {
			t.incarnations = append(t.incarnations, e.Number)
		}
	case leasetrace.KindCount:
		if e.Instant <= e.At { // otherwise the clock has stepped back
			t.counts[e.Term] = append(t.counts[e.Term], e)
		}
	case leasetrace.KindRequest:
		t.releasePromise(e)
		t.addFlag(e)
	default:
		t.addFlag(e)
	}
}

// addPause adds the time since the last event, if that is longer than a running process is
// silent: a leader with a lease probes at each heartbeat and followers answer, but without a
// leader there may be no event for some elections. A sole voter sends no probes.
func (t *timeline) addPause(at core.Instant) {
	lost := false
	for len(t.gaps) > 0 && t.gaps[0] <= at {
		lost = lost || t.gaps[0] > t.last
		t.gaps = t.gaps[1:]
	}
	limit := 10 * t.p.Start.Duration
	switch {
	case t.held && t.lastLease().sole:
		limit = math.MaxInt64
	case t.held:
		limit = t.p.Start.Duration
	}
	if silence := at.Sub(t.last); lost {
		t.pauses = append(t.pauses, [2]core.Instant{t.last, at})
	} else if silence > limit {
		t.mark("paused", fmt.Sprintf("has no event for %v: its process was paused, or starved", silence.Round(time.Millisecond)))
		t.pauses = append(t.pauses, [2]core.Instant{t.last, at})
	}
}

// addView adds the lease that readers see from here on: to the last lease if it renews that.
func (t *timeline) addView(e *leasetrace.Event) {
	s := &t.p.Start
	if e.Status != core.Valid || e.Instant <= 0 {
		t.endLease(t.last, e.Status)
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
		t.endLease(t.last, core.None)
		t.leases, t.held = append(t.leases, next), true
		return
	}
	switch old := t.lastLease(); {
	case t.last <= old.end && old.sole != next.sole:
		old.usable, old.end, next.from = min(old.usable, t.last), t.last, t.last
		if old.sole {
			old.why = "another member votes"
		}
		t.leases = append(t.leases, next)
	case t.last <= old.usable:
		old.usable, old.end = next.usable, next.end
	case t.last <= old.end: // in its margin: there were no reads in between
		old.end, next.from = t.last, t.last
		t.leases = append(t.leases, next)
	default:
		next.from = max(next.from, old.end)
		t.leases = append(t.leases, next)
	}
}

// endLease ends the lease at an instant, if it has not expired before.
func (t *timeline) endLease(at core.Instant, why core.Status) {
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

func (t *timeline) lastLease() *span { return &t.leases[len(t.leases)-1] }

// addPromise adds a promise: to the last one if it renews that.
func (t *timeline) addPromise(e *leasetrace.Event) {
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

// releasePromise ends the last promise if the request e carries its leader's release.
func (t *timeline) releasePromise(e *leasetrace.Event) {
	n := len(t.promises)
	if n == 0 || e.Number == 0 {
		return
	}
	p := &t.promises[n-1]
	if p.term < e.Number || p.term == e.Number && t.promised <= e.Instant {
		p.end = min(p.end, e.At)
	}
}

// maxNotes bounds the notes of one process. A process makes one each feedInterval, so keep has
// fewer.
const maxNotes = 1 << 10

// history is what is known of one process.
type history struct {
	leasetrace.Process
	notes []note // in order of time
	// reading is the newest reading of the process's clock, and from is where a live picture
	// begins by that clock. Both are 0 for a recorded trace.
	reading, from leaderlease.Instant
}

// note has the data of a member besides its trace: the counts since the note before, by
// an instant of its own clock. Members exchange notes as JSON.
type note struct {
	At leaderlease.Instant `json:"at"`
	// Lost is how many events are missing right before those of At.
	Lost uint64 `json:"lost,omitempty"`
	// Reads counts the reads that were served.
	Reads reads `json:"reads,omitzero"`
	// Hints counts suspicions of a leader by their reason, FalseAlarms those that were wrong.
	Hints       [detector.NumCauses]uint64 `json:"hints,omitzero"`
	FalseAlarms uint64                     `json:"false_alarms,omitempty"`
	// Stops means that the member stops on purpose.
	Stops bool `json:"leaves,omitempty"`
}

// reads are numbers of reads by leaderlease.Path.
type reads [leaderlease.PathForwarded + 1]uint64

// counters is what a member has counted since its start.
type counters struct {
	lease  leaderlease.Stats
	leader detector.Stats
}

func (c *Config) counters() (t counters) {
	if c.Counted != nil {
		t.lease, t.leader = c.Counted()
	}
	return t
}

// since returns a note of what was counted after before, if anything was.
func (t *counters) since(before *counters, at leaderlease.Instant) (notes []note) {
	var n note
	for i := range n.Reads {
		n.Reads[i] = increase(t.lease.Reads[i], before.lease.Reads[i])
	}
	for i := range n.Hints {
		n.Hints[i] = increase(t.leader.Suspicions[i], before.leader.Suspicions[i])
	}
	n.FalseAlarms = increase(t.leader.FalseSuspicions, before.leader.FalseSuspicions)
	if n == (note{}) {
		return nil
	}
	n.At = at
	return []note{n}
}

// increase returns now - before, or now if the counter began anew in between.
func increase(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// gapNotes returns a note for each place where events are missing: more happened than the ring
// of the trace keeps until it is read.
func gapNotes(events []leasetrace.Event) (notes []note) {
	for i := 1; i < len(events); i++ {
		if next := events[i-1].Seq + 1; events[i].Seq > next {
			notes = append(notes, note{At: events[i].At, Lost: events[i].Seq - next})
		}
	}
	return notes
}

// notesSince returns the notes from an instant on, at most the newest maxNotes.
func notesSince(notes []note, at leaderlease.Instant) []note {
	n := max(0, len(notes)-maxNotes)
	for n < len(notes) && notes[n].At < at {
		n++
	}
	return notes[n:]
}

// suspicionReasons says why a member suspects its leader.
var suspicionReasons = [detector.NumCauses]string{
	detector.Silence: "it is silent", detector.ConnClosed: "its connections have ended", detector.PreVote: "it is silent, and another member suspects it",
	detector.Transfer: "it transfers its leadership", detector.Resignation: "it resigns", detector.LongSilence: "it is silent for much longer than of late",
	detector.ProcessDied: "its supervisor reports that its process is dead",
}

// addNote adds what a note says to the timeline.
func (t *timeline) addNote(n *note) {
	flag := func(kind, text string) { t.flags = append(t.flags, mark{n.At, kind, text}) }
	t.stops = t.stops || n.Stops
	if n.Reads != (reads{}) {
		t.reads = append(t.reads, n)
	}
	for way, times := range n.Hints {
		if times > 0 {
			flag("suspects", "suspects its leader: "+suspicionReasons[way])
		}
	}
	if n.FalseAlarms > 0 {
		flag("false", "hears from the leader that it suspected")
	}
	if n.Lost > 0 {
		t.gaps = append(t.gaps, n.At)
		flag("gap", fmt.Sprintf("%d events are lost here: more happened than the trace keeps", n.Lost))
	}
}
