package leasepage

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Picture is what the page shows. Its times are milliseconds on one axis for all members. The
// page reads it as JSON.
type Picture struct {
	Lanes []*Lane `json:"lanes"`
	// From and To are the times of the first and the last event.
	From ms `json:"from"`
	To   ms `json:"to"`
	// Verdict is the judgement of recorded traces by leasetrace, Refused the rule that one of
	// them breaks. Proved means that all events of all voters are judged: no lease is missing,
	// and leases of different terms follow one another.
	Verdict string `json:"verdict,omitempty"`
	Refused string `json:"refused,omitempty"`
	Proved  bool   `json:"proved,omitempty"`
}

// ms is milliseconds, to a microsecond.
type ms float64

// Lane is one member.
type Lane struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Learner means that the member is known not to vote.
	Learner bool `json:"learner,omitempty"`
	// Heard is when the member's processes are known to have run, without their pauses.
	Heard []Heard `json:"heard"`
	// RestartHolds are restart holds: from, to.
	RestartHolds [][2]ms   `json:"holds"`
	Leases       []Lease   `json:"leases"`
	Promises     []Promise `json:"promises"`
	// Renewals are pairs: when a quorum round was sent, and when it had renewed the lease.
	Renewals []ms `json:"renewals"`
	// Reads are an instant each, and how many reads were served in the 100 ms before: under
	// the lease, joined to a renewal, by a round, forwarded. Recorded traces have none.
	Reads [][5]ms `json:"reads"`
	Flags []Flag  `json:"flags"`
}

// Heard is an interval that the events of one process cover.
type Heard struct {
	From ms `json:"from"`
	To   ms `json:"to"`
}

// Lease is a lease that was held without a break, with all its renewals. The holder may serve
// reads from Known until Usable. No other member can be elected from From until Usable.
type Lease struct {
	Term   uint64 `json:"term"`
	From   ms     `json:"from"`
	Known  ms     `json:"known"`
	Usable ms     `json:"usable"`
	End    ms     `json:"end"`
	// ReadTime is how long each renewal allows reads, counted from the sending of its round. It
	// is 0 for a sole voter: its lease is not renewed, and Usable and End of the newest one are
	// the last instant at which the process was heard. Margin is MaxClockSkew,
	// the time from Usable to End.
	ReadTime ms `json:"reads,omitempty"`
	Margin   ms `json:"margin"`
	// Before and After bound how far From and Known, and Usable and End, are wrong.
	Before ms `json:"before"`
	After  ms `json:"after"`
	// Loose means that nothing says where on the axis the lease belongs.
	Loose bool `json:"loose,omitempty"`
	// Why is the reason for which the holder gave the lease up; it is empty if the lease
	// expired or is held.
	Why string `json:"why,omitempty"`
	// Released means that the previous leader released its promises, so that this lease did
	// not wait for their end.
	Released bool `json:"released,omitempty"`
}

// Promise is a promise to a leader, with all its renewals.
type Promise struct {
	To   string `json:"to"` // the ID of the leader
	Term uint64 `json:"term"`
	From ms     `json:"from"`
	End  ms     `json:"end"`
}

// Flag is something that happened at an instant.
type Flag struct {
	At   ms     `json:"at"`
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Draw turns recorded traces into a picture, and judges them. The processes of one member are
// in the order in which they ran. Members without a name are called by their IDs.
func Draw(all []leasetrace.Process, names map[uint64]string) *Picture {
	pic, v := draw(all, names), leasetrace.Judge(all)
	switch err := v.Err(); {
	case v.Refused != nil:
		pic.Refused = v.Refused.Error()
	case err != nil:
		pic.Verdict = err.Error()
	default:
		pic.Proved = true
		pic.Verdict = fmt.Sprintf("%d events of %d processes are judged, and allowed", v.Events(), len(v.Processes))
	}
	for i := range all {
		for j := range all[i].Events {
			if e := &all[i].Events[j]; e.Kind == leasetrace.KindVoter && pic.addUnheard(e.Peer, names) {
				pic.Proved = false
				pic.Verdict += fmt.Sprintf("; the trace of the voter %s is missing", nameOf(e.Peer, names))
			}
		}
	}
	return pic
}

// draw is Draw without the judgement. The picture begins with the first process.
func draw(all []leasetrace.Process, names map[uint64]string) *Picture {
	known := make([]history, len(all))
	for i := range all {
		known[i].Process = all[i]
	}
	timelines := readAll(known, names)
	align(timelines)
	zero := int64(math.MaxInt64)
	for _, t := range timelines {
		on, _ := t.axis.place(t.first)
		zero = min(zero, on)
	}
	return drawn(timelines, names, zero)
}

// readAll reads the timelines of processes. It ignores those without a valid beginning.
func readAll(all []history, names map[uint64]string) (timelines []*timeline) {
	newest := make(map[uint64]*timeline)
	for i := range all {
		p := &all[i]
		if p.Start.Duration == 0 {
			continue
		}
		t := readTimeline(p, names)
		if before := newest[p.Start.ID]; before != nil {
			before.replaced = true
		}
		newest[p.Start.ID] = t
		timelines = append(timelines, t)
	}
	return timelines
}

// drawn makes the picture of aligned timelines. Its times count from zero on the axis.
func drawn(timelines []*timeline, names map[uint64]string, zero int64) *Picture {
	pic, lanes := &Picture{Lanes: []*Lane{}}, make(map[uint64]*Lane)
	for i, t := range timelines {
		id := t.p.Start.ID
		if lanes[id] == nil {
			lanes[id] = newLane(id, names)
			pic.Lanes = append(pic.Lanes, lanes[id])
		}
		t.zero = zero
		t.flagEnd()
		t.drawOn(lanes[id])
		from, to := t.ms(t.first), t.ms(t.last)
		if i == 0 {
			pic.From, pic.To = from, to
		}
		pic.From, pic.To = min(pic.From, from), max(pic.To, to)
	}
	pic.sort()
	return pic
}

// sort puts n2 before n10.
func (p *Picture) sort() {
	slices.SortStableFunc(p.Lanes, func(a, b *Lane) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
}

// addUnheard adds an empty lane for a member that was not heard, since it may hold a lease. It
// reports whether there was none.
func (p *Picture) addUnheard(id uint64, names map[uint64]string) (added bool) {
	if slices.ContainsFunc(p.Lanes, func(l *Lane) bool { return l.ID == hex(id) }) {
		return false
	}
	p.Lanes = append(p.Lanes, newLane(id, names))
	p.sort()
	return true
}

// newLane returns an empty lane. Its lists are not nil: JSON has [] for them.
func newLane(id uint64, names map[uint64]string) *Lane {
	return &Lane{
		ID: hex(id), Name: nameOf(id, names), Heard: []Heard{}, RestartHolds: [][2]ms{}, Leases: []Lease{},
		Promises: []Promise{}, Renewals: []ms{}, Reads: [][5]ms{}, Flags: []Flag{},
	}
}

func hex(id uint64) string { return strconv.FormatUint(id, 16) }

func nameOf(id uint64, names map[uint64]string) string { return cmp.Or(names[id], hex(id)) }

// ms returns where a reading of the process's clock is in the picture.
func (t *timeline) ms(at core.Instant) ms {
	on, _ := t.axis.place(at)
	return rounded(on - t.zero)
}

func rounded(ns int64) ms { return ms(float64(ns/int64(time.Microsecond)) / 1000) }

// drawOn adds the timeline to the lane of its member.
func (t *timeline) drawOn(l *Lane) {
	s := &t.p.Start
	from := t.first
	for _, p := range t.pauses {
		if p[0] >= from {
			l.Heard = append(l.Heard, Heard{t.ms(from), t.ms(p[0])})
		}
		from = max(from, p[1])
	}
	l.Heard = append(l.Heard, Heard{t.ms(from), t.ms(t.last)})
	if t.whole && s.Hold > 0 {
		l.RestartHolds = append(l.RestartHolds, [2]ms{t.ms(s.At), t.ms(s.At.Add(s.Hold))})
	}
	for i := range t.leases {
		l.Leases = append(l.Leases, t.lease(&t.leases[i]))
	}
	for i := range t.promises {
		p := &t.promises[i]
		l.Promises = append(l.Promises, Promise{hex(p.peer), p.term, t.ms(p.from), t.ms(p.end)})
	}
	for _, at := range t.renewals {
		l.Renewals = append(l.Renewals, t.ms(at))
	}
	for _, n := range t.reads {
		r := n.Reads
		l.Reads = append(l.Reads, [5]ms{
			t.ms(n.At), ms(r[leaderlease.PathLease]), ms(r[leaderlease.PathJoined]), ms(r[leaderlease.PathReadIndex]), ms(r[leaderlease.PathForwarded]),
		})
	}
	for _, f := range t.flags {
		l.Flags = append(l.Flags, Flag{t.ms(f.at), f.kind, f.text})
	}
}

func (t *timeline) lease(s *span) Lease {
	_, before := t.axis.place(s.from)
	_, after := t.axis.place(s.usable)
	l := Lease{
		Term: s.term, From: t.ms(s.from), Known: t.ms(s.known), Usable: t.ms(s.usable), End: t.ms(s.end),
		Margin: rounded(int64(t.p.Start.MaxClockSkew)), Before: rounded(before), After: rounded(after),
		Why: s.why, Released: s.released, Loose: t.loose,
	}
	if !s.sole {
		l.ReadTime = rounded(int64(t.p.Start.Duration - t.p.Start.MaxClockSkew))
	}
	return l
}

// mark sets a flag at the last instant.
func (t *timeline) mark(kind, text string) { t.flags = append(t.flags, mark{t.last, kind, text}) }

// isRare reports whether a frequent flag was not set in the last second, and so may be set.
func (t *timeline) isRare(what string) bool {
	at, ok := t.flagged[what]
	if ok && t.last.Sub(at) < time.Second {
		return false
	}
	t.flagged[what] = t.last
	return true
}

// flagStart flags the start of the process.
func (t *timeline) flagStart() {
	s := &t.p.Start
	text := "starts"
	if s.Term > 0 {
		text = fmt.Sprintf("restarts in term %d", s.Term)
	}
	if s.Hold > 0 {
		text += fmt.Sprintf(", and holds its vote for %v: it does not know its earlier promises", s.Hold)
	}
	t.mark("start", text)
}

// handOverTime is the time after its hand-over in which a resigning leader ends. A leader that ends
// later was killed.
const handOverTime = time.Second

// flagEnd flags the end of the process, if it is known.
func (t *timeline) flagEnd() {
	switch {
	case t.p.Cut != "":
		t.mark("gap", "events are missing: "+t.p.Cut)
	case t.p.Ended, t.stops:
		t.mark("end", "stops")
	case t.replaced && t.handed != 0 && t.last.Sub(t.handed) <= handOverTime:
		t.mark("end", "ends after it handed its lease over")
	case t.replaced:
		t.mark("killed", "ends without notice, like a process that is killed")
	}
}

// addFlag adds a flag for an event, if the event is worth one.
func (t *timeline) addFlag(e *leasetrace.Event) {
	peer := nameOf(e.Peer, t.names)
	switch e.Kind {
	case leasetrace.KindRaft:
		t.flagRole(e)
	case leasetrace.KindRelease:
		t.handed = t.last
		t.mark("transfer", fmt.Sprintf("gives its lease up and hands over to %s", peer))
	case leasetrace.KindRequest, leasetrace.KindCandidacy, leasetrace.KindVoteOut:
		t.flagElection(e, peer)
	case leasetrace.KindHeld:
		if !e.OK {
			t.mark("lost", fmt.Sprintf("has lost its lease: %v", e.Status))
		}
	case leasetrace.KindVoters:
		if t.voters != 0 && t.voters != e.Number {
			t.mark("voters", fmt.Sprintf("counts %d voters", e.Number))
		}
		t.voters = e.Number
	default:
		t.flagEnvironment(e)
	}
}

// flagRole flags the beginning and the end of leadership.
func (t *timeline) flagRole(e *leasetrace.Event) {
	was := t.role
	t.role = e.Role
	switch {
	case e.Role == raft.StateLeader && was != raft.StateLeader && (t.whole || !e.OK): // otherwise it led before the first event
		t.mark("elected", fmt.Sprintf("is elected in term %d", e.Term))
	case e.Role != raft.StateLeader && was == raft.StateLeader:
		t.mark("down", fmt.Sprintf("steps down, in term %d", e.Term))
	}
}

// flagElection flags requests for votes and refusals.
func (t *timeline) flagElection(e *leasetrace.Event, peer string) {
	switch asks := e.Kind == leasetrace.KindCandidacy; {
	case e.Kind == leasetrace.KindRequest && e.Message == raftpb.MsgTimeoutNow && e.OK:
		t.released = e.Number != 0
		t.mark("asked", fmt.Sprintf("is asked by %s to campaign", peer))
	case asks && e.OK && t.isRare(fmt.Sprint(e.Message, e.Term)):
		t.mark("asks", fmt.Sprintf("requests %s in term %d", votes(e.Message), e.Term))
	case e.OK:
	case asks && t.isRare("kept"):
		t.mark("refused", "is bound by a promise, and does not campaign")
	case !asks && t.isRare("refused "+peer):
		t.mark("refused", fmt.Sprintf("is bound by a promise, and does not vote for %s", peer))
	}
}

func votes(m raftpb.MessageType) string {
	if m == raftpb.MsgPreVote {
		return "pre-votes"
	}
	return "votes"
}

// environment has the flags of what happens to clock, disk and configuration: the kind, the
// text if the event says OK, and the text if it does not.
var environment = map[leasetrace.Kind][3]string{
	leasetrace.KindClockFailed:    {"clock", "", "cannot read its clock"},
	leasetrace.KindClockRead:      {"clock", "", "can read its clock again"},
	leasetrace.KindClockBack:      {"clock", "", "saw its clock step back"},
	leasetrace.KindClockDisrupted: {"clock", "", "had its clock disrupted, as by a migration of the machine"},
	leasetrace.KindProcessDied:    {"lost", "learns that the process it promised to is dead, and is free", "learns that a process is dead that it has no promise to"},
	leasetrace.KindInvalidate:     {"lost", "", "is told to give its lease up"},
	leasetrace.KindDisk:           {"disk", "has a disk that does not answer", "has a disk that answers again"},
	leasetrace.KindConfPending:    {"voters", "begins a configuration change", "has applied its configuration changes"},
	leasetrace.KindDisabled:       {"lost", "has leases turned off", "has leases turned on"},
}

func (t *timeline) flagEnvironment(e *leasetrace.Event) {
	f, ok := environment[e.Kind]
	bootstrap := e.Kind == leasetrace.KindConfPending && len(t.promises)+len(t.leases) == 0
	if !ok || bootstrap {
		return
	}
	text := f[2]
	if e.OK && f[1] != "" {
		text = f[1]
	}
	t.mark(f[0], text)
}
