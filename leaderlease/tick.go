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
// It withholds the tick while this node is the only voter of its own
// configuration and bound: raft would elect it without sending anything (V5).
// It also repeats lost read rounds and notices that the lease has run out.
func (l *Lease) Tick() bool {
	l.mu.Lock()
	now := l.nowLocked()
	done := l.publishLocked(now)
	l.retryLocked()
	may := l.mu.role == raft.StateLeader || !l.aloneLocked() || !l.mu.guard.Bound(now)
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
	if r.waiting.len() == 0 {
		return
	}
	r.age++
	if !r.asked || r.age >= max(l.cfg.Raft.ElectionTick/2, 1) {
		l.askLocked()
	}
}
