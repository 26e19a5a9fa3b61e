package kvnode

import (
	"context"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/kvnode/internal/proposals"
)

// patience is the time that a read still waits for a leader. Its zero value waits for ever.
type patience struct {
	limit time.Duration // 0: none
	since time.Time     // when the leader was first seen missing; zero while there is one
}

func (o *reads) patienceOf(ctx context.Context) patience {
	if proposals.FailsWithoutLeader(ctx) {
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
