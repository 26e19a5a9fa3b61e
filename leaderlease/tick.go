package leaderlease

import (
	"go.etcd.io/raft/v3"
)

// Tick is called each TickInterval, and reports whether raft may tick now:
//
//	if lease.Tick() {
//		node.Tick()
//	}
//
// It withholds the tick while this node is bound and known to be the only voter: raft
// would elect it without sending anything (V5). While the configuration is not known,
// because ApplyConfState is awaited or was called wrongly, ticks go on, since a leader
// may bind this node for as long as it leads; Ready holds back then what V5 forbids.
// It also repeats lost read rounds, notices that the lease has run out, warns of reads
// that wait for an Applied that does not move, and has a shorter promise saved when
// that is due.
func (l *Lease) Tick() bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	now := l.nowLocked()
	done := l.publishLocked(now)
	l.retryLocked()
	l.warnLocked()
	l.saveLocked(now)
	may := l.mu.role == raft.StateLeader || !l.soleVoterLocked() || !l.mu.guard.Bound(now)
	l.traceTickLocked(now, may)
	l.mu.Unlock()
	done.report()
	if !may {
		l.stats.withheld[WithheldTick].Add(1)
	}
	return may
}

// retryLocked asks again for a round that has not been answered for half an
// election timeout. A leader's own rounds are repeated by raft with each
// heartbeat; those of a follower are not.
func (l *Lease) retryLocked() {
	r := &l.mu.reads
	r.age++
	if r.waiting.len() > 0 && l.overdueLocked() {
		l.askLocked()
	}
}

// overdueLocked reports whether no round is under way, as far as can be told. One may
// have been lost while those who waited for it have left.
func (l *Lease) overdueLocked() bool {
	r := &l.mu.reads
	return !r.asked || r.age >= max(l.cfg.Raft.ElectionTick/2, 1)
}
