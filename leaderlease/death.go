package leaderlease

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/votes"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// ProcessDied tells the lease that a process of leader will never execute another instruction,
// because its parent has reaped it. leader is a raft ID, and dead is the process ID that
// Incoming was given with that process's messages.
//
// If this member's newest promise is to that very process, no lease relies on the promise any
// more, so it is void (V8). ProcessDied then returns the message by which this member campaigns
// at once, without PreVote, and true. Pass it through Incoming and to raft's Step, as if leader
// had sent it, when it is this member's turn (package detector), or drop it:
//
//	if m, ok := lease.ProcessDied(leader, process); ok && lease.Incoming(m, leaderlease.ProcessID{}) {
//		node.Step(m)
//	}
//
// Otherwise it returns nil and false, and the death is no more than a reason to suspect the
// leader: the promise is to another process or to an unknown one, raft is in a later term, or
// this member is in its restart hold (V6). Messages that the dead process has sent, and that
// arrive later, get no promise. The call may come late, repeatedly or never, from any goroutine.
//
// A false report elects a second leader beside a valid lease, which serves stale reads
// (assumption A3'). These prove no death: a closed connection, a timeout, a failed health check,
// an orchestrator that has given up a machine, and knowledge of the ID, which all peers have.
// Do not call ProcessDied where a process may run again after its end (checkpoint and restore, a
// clone of the machine), nor while a member uses AsyncStorageWrites with a version of this
// library without V9.
func (l *Lease) ProcessDied(leader uint64, dead ProcessID) (*raftpb.Message, bool) {
	if l == nil || leader == l.id() {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil, false
	}
	now := l.nowLocked()
	left := l.mu.guard.Info(now).Remaining
	rel, void := l.mu.guard.ProcessDied(leader, dead)
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindProcessDied, At: now, Peer: leader, Term: rel.Term, Number: shown(dead), OK: void})
	l.stats.obituaries.Add(1)
	if !void {
		return nil, false
	}
	if left > 0 { // once, however often it is told
		l.stats.voided.Add(1)
	}
	if l.mu.guard.Bound(now) {
		return nil, false
	}
	return l.afterDeath(leader, rel), true
}

// afterDeath returns the message by which leader would release its promises and make this
// member campaign.
func (l *Lease) afterDeath(leader uint64, rel core.Release) *raftpb.Message {
	m := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(l.id()), From: new(leader), Term: new(rel.Term)}
	votes.MarkObituary(m)
	attachRelease(m, rel)
	return m
}
