package leasepage

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetrace"
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
	leasetrace.KindClockDisrupted: {"clock", "", "had its clock disrupted, as by a suspend of the machine"},
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
