package leaderlease

import (
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/core"
)

// holdBack waits while this node would elect itself, or stand for election,
// against a promise that its leader relies on, and reports whether that came to an
// end before stop did. Without AsyncStorageWrites raft counts the node's own vote
// in Advance, where no filter sees it (V5).
//
// No grant leaves meanwhile.
func (l *Lease) holdBack(rd *raft.Ready, stop <-chan struct{}) bool {
	for l.Blocks(rd) {
		l.stats.withheld[WithheldSelf].Add(1)
		l.mu.Lock()
		left := l.mu.guard.Info(l.nowLocked())
		l.mu.Unlock()
		select {
		case <-time.After(min(max(left.Remaining, left.Hold, time.Millisecond), l.longest)):
		case <-stop:
			return false
		}
	}
	return true
}

// Blocks reports whether Ready(rd) would block now. A loop that must not block
// goes on with Step and Tick, does nothing with rd, does not call Advance, and
// asks again later, at least once in MaxPromise.
func (l *Lease) Blocks(rd *raft.Ready) bool {
	if l == nil {
		return false
	}
	if rd.SoftState == nil || l.cfg.Raft.AsyncStorageWrites || rd.RaftState == raft.StateFollower {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.nowLocked()
	l.lateLocked(rd, now)
	// A pre-candidate's own vote elects it only where it is alone.
	counts := rd.RaftState == raft.StateCandidate || l.aloneLocked()
	if !counts || !l.mu.guard.Owes(now) {
		l.mu.still = standstill{}
		return false
	}
	return l.mu.still.shorterThan(l.longest, now, l.disruptions())
}

// standstill is for how long the lease clock has been seen to be dead or to stand
// still, by Go's clock: it never shows the end of what is owed then. While it moves,
// or was disrupted, Go's clock has no say, since it jumps with the machine.
type standstill struct {
	reading core.Instant
	marker  uint64
	since   time.Time
}

// shorterThan notes a reading and reports whether the clock has moved, or a grant has
// left, within d. What was granted before has ended after the longest promise.
func (s *standstill) shorterThan(d time.Duration, now core.Instant, marker uint64) bool {
	if s.since.IsZero() || marker != s.marker || (now.Valid() && now != s.reading) {
		*s = standstill{reading: now, marker: marker, since: time.Now()}
	}
	return time.Since(s.since) < d
}
