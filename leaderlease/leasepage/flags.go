package leasepage

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// starts flags the start of a process.
func (t *track) starts() {
	s := &t.p.Start
	text := "starts"
	if s.Term > 0 {
		text = fmt.Sprintf("starts again in term %d", s.Term)
	}
	if s.Hold > 0 {
		text += fmt.Sprintf(", and holds for %v: what it has promised before is not known", s.Hold)
	}
	t.mark("start", text)
}

// parting is how long after it has handed over a leader may end without another word, as
// one does that resigns. Longer: one that is killed passes for such a one.
const parting = time.Second

// ends flags the end of a process, if that is known.
func (t *track) ends() {
	switch {
	case t.p.Cut != "":
		t.mark("gap", "events are missing: "+t.p.Cut)
	case t.p.Ended, t.left:
		t.mark("end", "stops")
	case t.replaced && t.handed != 0 && t.last.Sub(t.handed) <= parting:
		t.mark("end", "ends, and has handed its lease over")
	case t.replaced:
		t.mark("killed", "ends without a word, as a process does that is killed")
	}
}

func (t *track) mark(kind, text string) { t.flags = append(t.flags, mark{t.last, kind, text}) }

// flag takes an event that is flagged, if it is.
func (t *track) flag(e *leaderlease.TraceEvent) {
	peer := called(e.Peer, t.names)
	switch e.Kind {
	case leaderlease.TraceRaft:
		t.raft(e)
	case leaderlease.TraceRelease:
		t.handed = t.last
		t.mark("transfer", fmt.Sprintf("gives its lease up and hands over to %s", peer))
	case leaderlease.TraceRequest, leaderlease.TraceCandidacy, leaderlease.TraceVoteOut:
		t.election(e, peer)
	case leaderlease.TraceHeld:
		if !e.OK {
			t.mark("lost", fmt.Sprintf("holds no lease any more: %v", e.Status))
		}
	case leaderlease.TraceVoters:
		if t.voters != 0 && t.voters != e.Number {
			t.mark("voters", fmt.Sprintf("counts %d voters", e.Number))
		}
		t.voters = e.Number
	default:
		kind, text := surroundings(e)
		if founding := kind == "voters" && len(t.promises)+len(t.leases) == 0; kind != "" && !founding {
			t.mark(kind, text)
		}
	}
}

// raft flags reigns.
func (t *track) raft(e *leaderlease.TraceEvent) {
	was := t.role
	t.role = e.Role
	switch {
	case e.Role == raft.StateLeader && was != raft.StateLeader && (t.whole || !e.OK): // or it was before what is kept
		t.mark("elected", fmt.Sprintf("is elected in term %d", e.Term))
	case e.Role != raft.StateLeader && was == raft.StateLeader:
		t.mark("down", fmt.Sprintf("steps down, in term %d", e.Term))
	}
}

// election flags who wants to be elected, and who is not helped.
func (t *track) election(e *leaderlease.TraceEvent, peer string) {
	switch asks := e.Kind == leaderlease.TraceCandidacy; {
	case e.Kind == leaderlease.TraceRequest && e.Message == raftpb.MsgTimeoutNow && e.OK:
		t.released = e.Number != 0
		t.mark("asked", fmt.Sprintf("is asked by %s to lead", peer))
	case asks && e.OK && t.seldom(fmt.Sprint(e.Message, e.Term)):
		t.mark("asks", fmt.Sprintf("asks for %s in term %d", votes(e.Message), e.Term))
	case e.OK:
	case asks && t.seldom("kept"):
		t.mark("refused", "is bound, and may not ask for votes")
	case !asks && t.seldom("refused "+peer):
		t.mark("refused", fmt.Sprintf("is bound, and does not help %s", peer))
	}
}

func votes(m raftpb.MessageType) string {
	if m == raftpb.MsgPreVote {
		return "pre-votes"
	}
	return "votes"
}

// surroundings says what has happened to the clock, the disk or the configuration.
func surroundings(e *leaderlease.TraceEvent) (kind, text string) {
	switch e.Kind {
	case leaderlease.TraceClockFailed:
		return "clock", "cannot read its clock"
	case leaderlease.TraceClockRead:
		return "clock", "can read its clock again"
	case leaderlease.TraceClockBack:
		return "clock", "has seen its clock go back"
	case leaderlease.TraceClockDisrupted:
		return "clock", "has had its clock disrupted, as by a suspend of the machine"
	case leaderlease.TraceObituary:
		return "lost", either(e.OK, "hears that the process which it has promised something is dead, and is free", "hears that a process is dead, to which it has promised nothing")
	case leaderlease.TraceInvalidate:
		return "lost", "is told to give its lease up"
	case leaderlease.TraceDisk:
		return "disk", either(e.OK, "has a disk that does not answer", "has a disk that answers again")
	case leaderlease.TraceConfPending:
		return "voters", either(e.OK, "has a change of the configuration open", "is through with a change of the configuration")
	case leaderlease.TraceDisabled:
		return "lost", either(e.OK, "has leases turned off", "has leases turned on")
	default:
		return "", ""
	}
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
