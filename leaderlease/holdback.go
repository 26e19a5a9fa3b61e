package leaderlease

import (
	"time"

	"go.etcd.io/raft/v3"
)

// holdBack waits until this node may elect itself, or stand for election, without breaking
// a promise that a leader relies on. It reports false if stop ended the wait. Without
// AsyncStorageWrites raft counts the node's own vote in Advance, where no filter sees it
// (V5).
//
// No grant leaves meanwhile.
func (l *Lease) holdBack(rd *raft.Ready, stop <-chan struct{}) bool {
	for l.WouldBlock(rd) {
		l.stats.withheld[WithheldSelf].Add(1)
		l.mu.Lock()
		left := l.mu.guard.Info(l.nowLocked())
		l.mu.Unlock()
		select {
		case <-time.After(max(left.Remaining, left.Hold, time.Millisecond)):
		case <-stop:
			return false
		}
	}
	return true
}

// WouldBlock reports whether Ready(rd) would block now. A loop that must not block
// goes on with Step and Tick, does nothing with rd, does not call Advance, and
// asks again later, at least once in MaxPromise.
func (l *Lease) WouldBlock(rd *raft.Ready) bool {
	if l == nil {
		return false
	}
	if rd.SoftState == nil || l.cfg.Raft.AsyncStorageWrites || rd.RaftState == raft.StateFollower {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.nowLocked()
	l.lateLocked(now)
	// A pre-candidate's own vote elects it only where it is alone.
	counts := rd.RaftState == raft.StateCandidate || l.aloneLocked()
	return counts && l.mu.guard.Owes(now)
}
