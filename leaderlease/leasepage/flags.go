package leasepage

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

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

// handOverTime is how soon after its hand-over a leader that resigns ends without another word.
// A leader that ends later was killed.
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

// addFlag flags what an event tells, if that is worth a flag.
func (t *timeline) addFlag(e *leaderlease.TraceEvent) {
	peer := nameOf(e.Peer, t.names)
	switch e.Kind {
	case leaderlease.TraceRaft:
		t.flagRole(e)
	case leaderlease.TraceRelease:
		t.handed = t.last
		t.mark("transfer", fmt.Sprintf("gives its lease up and hands over to %s", peer))
	case leaderlease.TraceRequest, leaderlease.TraceCandidacy, leaderlease.TraceVoteOut:
		t.flagElection(e, peer)
	case leaderlease.TraceHeld:
		if !e.OK {
			t.mark("lost", fmt.Sprintf("has lost its lease: %v", e.Status))
		}
	case leaderlease.TraceVoters:
		if t.voters != 0 && t.voters != e.Number {
			t.mark("voters", fmt.Sprintf("counts %d voters", e.Number))
		}
		t.voters = e.Number
	default:
		t.flagEnvironment(e)
	}
}

// flagRole flags the beginning and the end of leadership.
func (t *timeline) flagRole(e *leaderlease.TraceEvent) {
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
func (t *timeline) flagElection(e *leaderlease.TraceEvent, peer string) {
	switch asks := e.Kind == leaderlease.TraceCandidacy; {
	case e.Kind == leaderlease.TraceRequest && e.Message == raftpb.MsgTimeoutNow && e.OK:
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
var environment = map[leaderlease.TraceKind][3]string{
	leaderlease.TraceClockFailed:    {"clock", "", "cannot read its clock"},
	leaderlease.TraceClockRead:      {"clock", "", "can read its clock again"},
	leaderlease.TraceClockBack:      {"clock", "", "saw its clock step back"},
	leaderlease.TraceClockDisrupted: {"clock", "", "had its clock disrupted, as by a suspend of the machine"},
	leaderlease.TraceObituary:       {"lost", "learns that the process it promised to is dead, and is free", "learns that a process is dead that it has no promise to"},
	leaderlease.TraceInvalidate:     {"lost", "", "is told to give its lease up"},
	leaderlease.TraceDisk:           {"disk", "has a disk that does not answer", "has a disk that answers again"},
	leaderlease.TraceConfPending:    {"voters", "begins a configuration change", "has applied its configuration changes"},
	leaderlease.TraceDisabled:       {"lost", "has leases turned off", "has leases turned on"},
}

func (t *timeline) flagEnvironment(e *leaderlease.TraceEvent) {
	f, ok := environment[e.Kind]
	bootstrap := e.Kind == leaderlease.TraceConfPending && len(t.promises)+len(t.leases) == 0
	if !ok || bootstrap {
		return
	}
	text := f[2]
	if e.OK && f[1] != "" {
		text = f[1]
	}
	t.mark(f[0], text)
}
