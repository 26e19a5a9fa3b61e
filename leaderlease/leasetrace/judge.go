package leasetrace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Judge checks the traces of a group against the rules. Processes of one member must be in
// the order in which they ran; traces of whole members may be missing.
func Judge(all []Process) *Verdict {
	j := &judge{sent: make(map[message]*place), winner: make(map[uint64]*run), members: make(map[uint64][]*run)}
	for i := range all {
		j.add(&all[i])
	}
	j.run()
	for _, r := range j.runs {
		j.verdict.Processes = append(j.verdict.Processes, r.judged())
	}
	return &j.verdict
}

// judge is one judgement under way.
type judge struct {
	verdict Verdict
	runs    []*run
	members map[uint64][]*run // by ID, in order
	sent    map[message]*place
	winner  map[uint64]*run // by term
}

// run is one process as it is judged.
type run struct {
	p      *Process
	before *run // the newest process of the same member before of which an event is judged, if any
	// owed is the least that the same member's storage may hold about promises, 0 if none
	// was granted before.
	owed   time.Duration
	replay *replay
	whole  int    // events before the first gap
	gap    string // what is missing there
	at     int    // the event that is judged next
	// won is the newest term that was certainly won before that event, by the order of
	// events in each process and by messages.
	won uint64
}

// place is the first event that sends a message, and the sender's won at that event.
type place struct {
	r   *run
	at  int
	won uint64
}

func (j *judge) add(p *Process) {
	r := &run{p: p, replay: newReplay(p.Start)}
	r.whole, r.gap = p.whole()
	if older := j.members[p.Start.ID]; len(older) > 0 {
		r.before = older[len(older)-1]
		r.owed = r.before.p.remembered(r.before.owed)
		if r.before.whole == 0 {
			r.before = r.before.before
		}
	}
	j.members[p.Start.ID] = append(j.members[p.Start.ID], r)
	j.runs = append(j.runs, r)
	for i := range p.Events {
		if m, ok := sending(p.Start.ID, &p.Events[i]); ok {
			if _, known := j.sent[m]; !known {
				j.sent[m] = &place{r: r, at: i}
			}
		}
	}
}

// run steps every process until all are judged. Between members, the only known order is
// that a message is sent before it is received.
func (j *judge) run() {
	for j.verdict.Refused == nil {
		moved, waits := false, (*run)(nil)
		for _, r := range j.runs {
			for r.at < r.whole && j.verdict.Refused == nil {
				if !j.ready(r) {
					waits = r
					break
				}
				j.step(r)
				moved = true
			}
		}
		if moved {
			continue
		}
		if waits != nil {
			j.refuse(waits, errors.New("it receives a message that is sent later, as a consequence of this event"))
		}
		return
	}
}

// ready reports whether all that comes before the next event of r is judged.
func (j *judge) ready(r *run) bool {
	if r.before != nil && r.before.at < r.before.whole {
		return false
	}
	m, ok := receiving(r.p.Start.ID, &r.p.Events[r.at])
	if !ok {
		return true
	}
	from, known := j.sent[m]
	return !known || from.r.at > from.at || from.r.at == from.r.whole
}

// step judges the next event of r.
func (j *judge) step(r *run) {
	e := &r.p.Events[r.at]
	if r.at == 0 {
		if err := r.begins(); err != nil {
			j.refuse(r, err)
			return
		}
	}
	err := j.receive(r, e)
	if err == nil {
		err = r.replay.step(e)
	}
	if err == nil {
		err = j.claim(r, e)
	}
	if err != nil {
		j.refuse(r, err)
		return
	}
	if m, ok := sending(r.p.Start.ID, e); ok {
		if p := j.sent[m]; p.r == r && p.at == r.at {
			p.won = r.won
		}
	}
	j.verdict.Kinds[e.Kind]++
	r.at++
}

// begins compares a process with its predecessors on the same member: it must hold for the
// longest promise that they have saved (V6).
func (r *run) begins() error {
	if r.before != nil {
		r.won = r.before.won
	}
	s := &r.p.Start
	longest := cmp.Or(s.Saved, s.MaxPromise)
	switch {
	case s.Hold < r.owed:
		return fmt.Errorf("it holds for %v, and its predecessor has granted up to %v", s.Hold, r.owed)
	case s.Term > 0 && s.Hold < longest:
		return fmt.Errorf("it holds for %v after a restart in term %d, and may have granted %v", s.Hold, s.Term, longest)
	default:
		return nil
	}
}

// receive matches a received message with its send.
func (j *judge) receive(r *run, e *Event) error {
	m, ok := receiving(r.p.Start.ID, e)
	if !ok {
		return nil
	}
	from, known := j.sent[m]
	switch {
	case known:
		r.won = max(r.won, from.won)
		j.verdict.Matched++
	case j.mayBeMissing(&m):
		j.verdict.Unmatched++
	default:
		return fmt.Errorf("member %x has sent no such %v", m.from, m.kind)
	}
	return nil
}

// mayBeMissing reports whether m may have been sent in a gap of a trace, or by a process
// without a trace.
func (j *judge) mayBeMissing(m *message) bool {
	all, at := j.members[m.from], m.sentAt()
	missing := func(r *run) bool {
		if r.p.Ended && r.gap == "" {
			return false
		}
		return at == 0 || r.whole == 0 || at >= r.p.Events[r.whole-1].At
	}
	return len(all) == 0 || m.mayPrecede(&all[0].p.Start) || slices.ContainsFunc(all, missing)
}

// claim checks the theorem of docs/design.md: while a view passes its check, no process has
// won a later term.
func (j *judge) claim(r *run, e *Event) error {
	if e.Kind == KindRaft && e.Role == raft.StateLeader {
		if w := j.winner[e.Term]; w != nil && w != r {
			return fmt.Errorf("it leads term %d, which %v leads (V9)", e.Term, w.p)
		}
		j.winner[e.Term] = r
		j.verdict.Terms = len(j.winner)
		r.won = max(r.won, e.Term)
	}
	if v := &r.replay.shown; !r.replay.owing && v.Term < r.won && v.Check(e.At) == core.Valid {
		return fmt.Errorf("its view of term %d is valid, but term %d was won before", v.Term, r.won)
	}
	return nil
}

func (j *judge) refuse(r *run, why error) {
	j.verdict.Refused = &RefusedError{Process: r.p, Event: r.p.Events[r.at], Why: why}
}

func (r *run) judged() Judged {
	d := Judged{Process: r.p, Events: r.at, Until: r.gap, Gap: r.gap != ""}
	if !d.Gap && !r.p.Ended {
		d.Until = "what came next was not written"
	}
	return d
}

// message holds the fields that the traces of both the sender and the receiver record.
// A message may be received more than once, or never.
type message struct {
	kind      Kind
	from, to  uint64
	term      uint64
	instant   core.Instant
	rest      [3]uint64
	onMessage raftpb.MessageType
}

// sending returns the message that an event sends.
func sending(id uint64, e *Event) (m message, ok bool) {
	switch e.Kind {
	case KindProbe, KindGrant, KindCandidacy, KindVoteOut, KindRelease:
		return carried(e.Kind, id, e.Peer, e), e.OK
	default:
		return message{}, false
	}
}

// receiving returns the message that an event receives.
func receiving(id uint64, e *Event) (m message, ok bool) {
	switch e.Kind {
	case KindPromise:
		m = carried(KindProbe, e.Peer, id, e)
		m.rest[2] = 0 // the process is not in the message: its connection has named it
		return m, true
	case KindCount:
		return carried(KindGrant, e.Peer, id, e), true
	case KindVoteIn:
		return carried(KindVoteOut, e.Peer, id, e), true
	case KindRequest:
		if e.Message == raftpb.MsgTimeoutNow {
			return carried(KindRelease, e.Peer, id, e), e.Number != 0 && !isDeathNotice(e)
		}
		return carried(KindCandidacy, e.Peer, id, e), true
	default:
		return message{}, false
	}
}

func carried(k Kind, from, to uint64, e *Event) message {
	return message{
		kind: k, from: from, to: to, term: e.Term, instant: e.Instant, onMessage: e.Message,
		rest: [3]uint64{uint64(e.Duration), uint64(e.Reading), e.Number},
	}
}

// sentAt returns when the message was sent by the sender's clock, 0 if it does not say.
func (m *message) sentAt() core.Instant {
	switch m.kind {
	case KindProbe, KindRelease:
		return m.instant
	case KindGrant:
		return core.Instant(m.rest[1])
	default:
		return 0
	}
}

// mayPrecede reports whether the message may be of a process without a trace, before
// the first of its sender's that has one. Votes wait for their term to be durable (V9).
func (m *message) mayPrecede(first *Start) bool {
	switch at := m.sentAt(); {
	case first.Hold == 0:
		return false // it is the first of all
	case at != 0:
		return at < first.At
	default:
		return m.term <= first.Term || m.onMessage == raftpb.MsgPreVote || m.onMessage == raftpb.MsgPreVoteResp
	}
}

// Verdict is the result of Judge.
type Verdict struct {
	// Refused is the first event that the rules do not allow, nil if there is none.
	Refused *RefusedError
	// Processes has one entry for each process.
	Processes []Judged
	// Matched counts the received messages with a matching send in the traces. Unmatched
	// counts those that may have been sent where a trace is incomplete.
	Matched, Unmatched int
	// Terms counts the terms that have a leader in the traces.
	Terms int
	// Kinds counts the events that were judged.
	Kinds [NumKinds]int
}

// RefusedError is an event that the rules do not allow.
type RefusedError struct {
	Process *Process
	Event   Event
	Why     error
}

// Error implements error.
func (r *RefusedError) Error() string {
	e := &r.Event
	return fmt.Sprintf("%v, event %d, %v at %d: %v", r.Process, e.Seq, e.Kind, e.At, r.Why)
}

// Unwrap returns why.
func (r *RefusedError) Unwrap() error { return r.Why }

// Judged says how many events of a process were checked.
type Judged struct {
	*Process
	Events int
	// Until says why the check stopped, if that was before the end of the process. Gap is
	// set if events are missing there, so that later events were not checked.
	Until string
	Gap   bool
}

// Events returns how many events were judged.
func (v *Verdict) Events() (n int) {
	for _, k := range v.Kinds {
		n += k
	}
	return n
}

// Err returns Refused. Without one, it returns an error if events could not be checked,
// or if there are none.
func (v *Verdict) Err() error {
	if v.Refused != nil {
		return v.Refused
	}
	for _, p := range v.Processes {
		if p.Gap {
			return fmt.Errorf("%v is judged up to event %d: %s", p.Process, p.Events, p.Until)
		}
	}
	if v.Events() == 0 {
		return fmt.Errorf("there is nothing to judge")
	}
	return nil
}

// String returns one line for each process and a summary line.
func (v *Verdict) String() string {
	var b strings.Builder
	for _, p := range v.Processes {
		fmt.Fprintf(&b, "%v: judged up to event %d", p.Process, p.Events)
		if p.Until != "" {
			fmt.Fprintf(&b, ", where %s", p.Until)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d events of %d processes judged, %d promises, %d grants counted, %d views, %d terms with a leader; %d of %d messages have a matching send",
		v.Events(), len(v.Processes), v.Kinds[KindPromise], v.Kinds[KindCount],
		v.Kinds[KindView], v.Terms, v.Matched, v.Matched+v.Unmatched)
	if v.Refused != nil {
		fmt.Fprintf(&b, "\nREFUSED %v", v.Refused)
	}
	return b.String()
}
