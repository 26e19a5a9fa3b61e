package leaderlease

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/votes"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Obituary is for who knows, and does not guess, that a process of leader will never execute
// another instruction: its parent has reaped it. A connection that has ended proves nothing of
// the kind, nor do a timeout, a failed health check, an orchestrator that has given up a machine, or a process ID that
// is not in use: a false obituary elects a second leader beside a lease that is valid. Do not call it
// where a process may go on after its end (checkpoint and restore, a clone of the machine), nor while
// a member may run a version without V9, on which this relies, and AsyncStorageWrites. Knowing the ID proves nothing,
// because all peers know it: see IncomingFrom.
//
// If this member's promise is to that very process (IncomingFrom), nobody relies on it
// any more: it is void, also for the others (V8). Obituary then returns the message by which
// this member campaigns at once, without PreVote, and true. Pass it through Incoming and raft's
// Step, as if the leader had sent it, in this member's turn (package detector), or never:
//
//	if m, ok := lease.Obituary(leader, process); ok && lease.Incoming(m) {
//		node.Step(ctx, m)
//	}
//
// Otherwise it returns nil and false, and the word is worth no more than a hint: the promise is to
// another process, or it is not known to which, or raft is in a later term, or this
// member has started a short while ago and must wait (V6). It may come
// late, twice or never, from any goroutine. What the dead process has sent, and is read later, is promised nothing.
func (l *Lease) Obituary(leader uint64, dead ProcessID) (*raftpb.Message, bool) {
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
	rel, void := l.mu.guard.Obituary(leader, dead)
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindObituary, At: now, Peer: leader, Term: rel.Term, Number: shown(dead), OK: void})
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

// afterDeath is what leader would say if it handed its promises back.
func (l *Lease) afterDeath(leader uint64, rel core.Release) *raftpb.Message {
	m := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(l.id()), From: new(leader), Term: new(rel.Term)}
	votes.MarkObituary(m)
	attachRelease(m, rel)
	return m
}
