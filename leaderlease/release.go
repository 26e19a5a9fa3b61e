package leaderlease

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// releaseLocked gives the lease up before a MsgTimeoutNow leaves, and says so
// in it (L6).
func (l *Lease) releaseLocked(m *raftpb.Message, now core.Instant) {
	if m.GetTerm() != l.mu.lease.Term() {
		return
	}
	// The newest good reading is a lower bound of one that failed.
	if r := l.mu.lease.Release(max(now, l.mu.last)); r.At > 0 {
		attachRelease(m, r)
		l.traceMessageLocked(leasetrace.KindRelease, m, m.GetTo(), max(now, l.mu.last), &r, true)
	}
	l.stats.transfers.Add(1)
}

// releases reports whether r may ride on m: on the MsgTimeoutNow of its own
// term, or on a vote of the campaign that follows.
func releases(m *raftpb.Message, r core.Release) bool {
	switch m.GetType() {
	case raftpb.MsgTimeoutNow:
		return r.Term == m.GetTerm()
	case raftpb.MsgVote:
		return r.Term < m.GetTerm() && core.IsForcedVote(m)
	default:
		return false
	}
}

// lockPatience is for how long Resign waits for the lock: whoever holds it may hang, and a
// process that dies must not hang with it. Shorter: a busy leader dies without a word.
// Longer: the promises have ended by themselves.
const lockPatience = 50 * time.Millisecond

// Resign is for a leader that ends by itself: its disk has failed, its loop panics. If this
// member leads, Resign gives the lease up for good, as Close does, and only then returns the
// message that hands the promises back (L6): whoever it is sent to campaigns at once, and the
// voters need not wait until their promises have ended. Otherwise it does nothing, and returns
// nil and false.
//
// Name the one voter that has most of the log, of those that can be reached: the votes are
// split among several. If raft has asked one to take over already (LeadTransferee, with all of the log), that
// is the one. The message leaves at once, from any goroutine, past raft and Ready. If
// it is lost, nothing is: promises end by themselves then. A member that resigns and goes on
// all the same breaks nothing, but holds no lease in this process.
//
// Resign waits for nothing but the lock, and for 50 ms at most. It may be called after Close, and more than once.
func (l *Lease) Resign(to uint64) (*raftpb.Message, bool) {
	if l == nil || to == raft.None || to == l.id() || !l.lockSoon() {
		return nil, false
	}
	m, done := l.resignLocked(to)
	l.mu.Unlock()
	done.report()
	return m, m != nil
}

// lockSoon takes the lock and reports true, unless it is held for too long.
func (l *Lease) lockSoon() bool {
	for begun := time.Now(); !l.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Since(begun) >= lockPatience {
			return false
		}
	}
	return true
}

// resignLocked names the term of the reign, and not the node's: a loop that has stepped down
// has promised the leader of that one something (L6b).
func (l *Lease) resignLocked(to uint64) (*raftpb.Message, finished) {
	term := l.mu.lease.Term()
	if term == 0 {
		return nil, nil
	}
	now := l.nowLocked()
	m := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(to), From: new(l.id()), Term: new(term)}
	core.MarkResignation(m)
	l.releaseLocked(m, now)
	return m, l.closeLocked(now) // published before anybody has m (L7)
}

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
	core.MarkProcessDied(m)
	attachRelease(m, rel)
	return m
}
