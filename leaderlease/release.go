package leaderlease

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// releaseLocked gives the lease up before m, a MsgTimeoutNow, leaves, and attaches the release (L6).
func (l *Lease) releaseLocked(m *raftpb.Message, now core.Instant) {
	if m.GetTerm() != l.mu.lease.Term() {
		return
	}
	// now is 0 after a failed reading. The newest good one is not later than the real time.
	if r := l.mu.lease.Release(max(now, l.mu.last)); r.At > 0 {
		attachRelease(m, r)
		l.traceMessageLocked(leasetrace.KindRelease, m, m.GetTo(), max(now, l.mu.last), &r, true)
	}
	l.stats.transfers.Add(1)
}

// releases reports whether r may ride on m: on the MsgTimeoutNow of its own term, or on a forced MsgVote
// of a later term.
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

// lockPatience is how long Resign waits for the lock. The goroutine that holds it may hang, and a process
// that shuts down must not hang with it. A shorter wait fails on a busy leader. A wait as long as a promise
// gains nothing.
const lockPatience = 50 * time.Millisecond

// Resign is for a leader that shuts down: its disk has failed, or its loop panics. If this member leads,
// Resign gives the lease up for good, as Close does, and then returns the message that hands the promises
// back (L6). Its receiver campaigns at once, and the voters need not wait for the end of their promises.
// It returns nil and false if this member does not lead. If to is 0 or this member, or the lock is not free
// within 50 ms, it returns the same and leaves the lease as it is.
//
// The best receiver is the reachable voter with the longest log. If a transfer is under way
// (LeadTransferee) and the transferee has the whole log, choose it. Do not resign to several voters, since they
// would split the vote. Send the message at once, past raft and Ready. If it is lost, the promises end by
// themselves. A member that goes on after Resign does no harm, but holds no lease in this process.
//
// Resign waits only for the lock. It may be called from any goroutine, after Close,
// and more than once.
func (l *Lease) Resign(to uint64) (*raftpb.Message, bool) {
	if l == nil || to == raft.None || to == l.id() || !l.lockSoon() {
		return nil, false
	}
	m, done := l.resignLocked(to)
	l.mu.Unlock()
	done.report()
	return m, m != nil
}

// lockSoon takes the lock. It reports false if it could not within lockPatience.
func (l *Lease) lockSoon() bool {
	for begun := time.Now(); !l.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Since(begun) >= lockPatience {
			return false
		}
	}
	return true
}

// resignLocked uses the term of the lease, not the newest term that this node knows: raft may have stepped
// down already, and this node may have made a promise to the next leader (L6b).
func (l *Lease) resignLocked(to uint64) (*raftpb.Message, finished) {
	term := l.mu.lease.Term()
	if term == 0 {
		return nil, nil
	}
	now := l.nowLocked()
	m := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(to), From: new(l.id()), Term: new(term)}
	core.MarkResignation(m)
	l.releaseLocked(m, now)
	return m, l.closeLocked(now) // published before m is returned (L7)
}

// ProcessDied tells the lease that a process of leader will never execute another instruction, because
// its parent has reaped it. leader is a raft ID. dead is the process ID that Incoming received with that
// process's messages.
//
// If this member's newest promise is to that very process, no lease relies on the promise any more, so it
// is void (V8). ProcessDied then returns a message that makes this member campaign at once, without
// PreVote, and true. Package detector decides which member campaigns first. Pass the message
// through Incoming and to raft's Step, as if leader had sent it, or drop it:
//
//	if m, ok := lease.ProcessDied(leader, process); ok && lease.Incoming(m, leaderlease.ProcessID{}) {
//		node.Step(m)
//	}
//
// Otherwise it returns nil and false, and the death is only a reason to suspect the leader: the promise is
// to another process or to an unknown one, raft is in a later term, or this member is in its restart hold
// (V6). Late messages of the dead process get no promise. The call may come late, repeatedly or never,
// from any goroutine.
//
// A false report elects a second leader beside a valid lease, which serves stale reads (assumption A3').
// These prove no death: a closed connection, a timeout, a failed health check, an orchestrator that has
// given up a machine, and knowledge of the ID, which all peers have. Do not call ProcessDied if a process
// may run again after its end (checkpoint and restore, a clone of the machine), or while a member uses
// AsyncStorageWrites with a version of this library without V9.
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
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindProcessDied, At: now, Peer: leader, Term: rel.Term, Number: processNumber(dead), OK: void})
	l.stats.deaths.Add(1)
	if !void {
		return nil, false
	}
	if left > 0 { // once, however often the death is reported
		l.stats.voided.Add(1)
	}
	if l.mu.guard.Bound(now) {
		return nil, false
	}
	m := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: new(l.id()), From: new(leader), Term: new(rel.Term)}
	core.MarkProcessDied(m)
	attachRelease(m, rel)
	return m, true
}
