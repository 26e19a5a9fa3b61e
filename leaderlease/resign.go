package leaderlease

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/internal/votes"
)

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
	votes.MarkResignation(m)
	l.releaseLocked(m, now)
	return m, l.closeLocked(now) // published before anybody has m (L7)
}
