package kvnode

import (
	"context"
	"time"

	"go.etcd.io/raft/v3"
)

// FailWithoutLeader is the type of a context key. A request whose context has a value for it
// fails with ErrNoLeader once no leader was known for an election timeout while it waited, if
// nothing was done yet. Other requests wait for a leader until their context ends, or for
// RequestTimeout. docs/operations/change.md says why, under "Without a quorum".
type FailWithoutLeader struct{}

func isImpatient(ctx context.Context) bool { return ctx.Value(FailWithoutLeader{}) != nil }

// patience is the time that a read still waits for a leader. Its zero value waits for ever.
type patience struct {
	limit time.Duration // 0: none
	since time.Time     // when the leader was first seen missing; zero while there is one
}

func (o *reads) patienceOf(ctx context.Context) patience {
	if isImpatient(ctx) {
		return patience{limit: o.cfg.ElectionTimeout}
	}
	return patience{}
}

// over returns a channel that delivers when there is no leader for too long, and what stops its
// timer. A nil channel never delivers.
func (p *patience) over(leader uint64, now time.Time) (over <-chan time.Time, stop func()) {
	if leader != raft.None {
		p.since = time.Time{}
	}
	if leader != raft.None || p.limit == 0 {
		return nil, func() {}
	}
	if p.since.IsZero() {
		p.since = now
	}
	timer := time.NewTimer(p.since.Add(p.limit).Sub(now))
	return timer.C, func() { timer.Stop() }
}

// tickLeaderless counts a tick without a leader for each proposal that raft has not taken, and
// fails those whose clients do not wait for longer than limit ticks.
func (w *waiters) tickLeaderless(limit int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, p := range w.mu.all {
		if p.proposed || !p.proposal.impatient {
			continue
		}
		if p.leaderless++; p.leaderless > limit {
			w.removeLocked(id).tell(outcome{err: ErrNoLeader})
		}
	}
}
