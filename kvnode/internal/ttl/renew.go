package ttl

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Renew restarts the time of a TTL lease and returns its TTL in seconds. It fails with ErrNotLeader
// if this member does not lead, with rpctypes.ErrGRPCLeaseNotFound if the lease does not exist, and
// with the error of Confirm.
func (e *Engine) Renew(ctx context.Context, id int64) (int64, error) {
	r := e.current.Load()
	if r == nil {
		return 0, ErrNotLeader
	}
	for {
		// Confirmed after each wait, too: another member may lead now, and may have granted the ID again.
		if err := e.cfg.Member.Confirm(ctx, r.term); err != nil {
			return 0, err
		}
		k := r.renew(id)
		switch {
		case !r.isLeading():
			return 0, ErrNotLeader
		case k.ttl == 0:
			return 0, rpctypes.ErrGRPCLeaseNotFound
		case k.reset != nil:
			if err := r.resetCheckpoint(k.reset); err != nil {
				return 0, err
			}
			continue
		case k.wait == nil:
			e.stats.renewals.Add(1)
			return k.ttl, nil
		}
		select {
		case <-k.wait:
		case <-r.ctx.Done():
			return 0, ErrNotLeader
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// renewal is the result of one attempt to renew a TTL lease.
type renewal struct {
	ttl int64 // 0: the lease does not exist
	// wait is not nil if the attempt must wait for a proposal.
	wait <-chan struct{}
	// reset is not nil if the log may hold less than the full TTL. The caller must reset that
	// first.
	reset *entry
}

// renew moves the deadline of the TTL lease with that ID.
func (r *leadership) renew(id int64) renewal {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, l := r.lookupLocked(id)
	if e == nil {
		return renewal{}
	}
	if e.revoking != nil {
		return renewal{ttl: l.TTL, wait: e.revoking}
	}
	now := r.nowLocked()
	e.deadline = max(e.deadline, now.after(l.TTL))
	e.checkpointAt = now + servedTime(r.cfg.Checkpoint)
	switch {
	case e.checkpointing != nil:
		return renewal{ttl: l.TTL, wait: e.checkpointing}
	case e.checkpointed || l.Remaining > 0: // by this leader, or by an earlier one
		e.checkpointing = make(chan struct{})
		return renewal{ttl: l.TTL, reset: e}
	}
	return renewal{ttl: l.TTL}
}

// Left is the remaining time of a TTL lease.
type Left struct {
	store.TTLLease
	// Time is the time until the lease can be revoked, 0 if it is being revoked.
	Time time.Duration
}

// TimeLeft returns the remaining time of a TTL lease. It fails as Renew does.
func (e *Engine) TimeLeft(ctx context.Context, id int64) (Left, error) {
	r := e.current.Load()
	if r == nil {
		return Left{}, ErrNotLeader
	}
	if err := e.cfg.Member.Confirm(ctx, r.term); err != nil {
		return Left{}, err
	}
	left := r.left(id)
	switch {
	case !r.isLeading():
		return Left{}, ErrNotLeader
	case left.TTL == 0:
		return Left{}, rpctypes.ErrGRPCLeaseNotFound
	}
	return left, nil
}

func (r *leadership) left(id int64) Left {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, l := r.lookupLocked(id)
	if e == nil || e.revoking != nil {
		return Left{TTLLease: l}
	}
	// nowLocked is the latest possible time, so this is the shortest remaining time.
	return Left{TTLLease: l, Time: time.Duration(max(max(e.deadline, r.mu.graceEnd)-r.nowLocked(), 0))}
}
