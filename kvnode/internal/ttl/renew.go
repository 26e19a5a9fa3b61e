package ttl

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Renew begins the time of a TTL lease anew and returns its TTL in seconds. It
// fails with ErrNotLeader on a member that does not lead, with
// rpctypes.ErrGRPCLeaseNotFound if there is no such TTL lease, and with what
// Confirm returns.
func (e *Engine) Renew(ctx context.Context, id int64) (int64, error) {
	r := e.current.Load()
	if r == nil {
		return 0, ErrNotLeader
	}
	for {
		// Each time: another may lead since, and have granted the ID again.
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

// renewal is how far a keep-alive has come.
type renewal struct {
	ttl int64 // 0: there is no such TTL lease
	// wait is not nil if something is under way that must be over first.
	wait <-chan struct{}
	// takeBack is not nil if the log may hold less than the TTL: the caller must
	// have that taken back first.
	reset *entry
}

// renew moves the deadline of the TTL lease with that ID.
func (r *leadership) renew(id int64) renewal {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The store knows what there is; the reign, what time is left.
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
	case e.checkpointed || l.Remaining > 0: // by this leader, or by one before
		e.checkpointing = make(chan struct{})
		return renewal{ttl: l.TTL, reset: e}
	}
	return renewal{ttl: l.TTL}
}

// Left is what is left of a TTL lease.
type Left struct {
	store.TTLLease
	// Time is until the earliest moment at which it is revoked, 0 if that is under
	// way.
	Time time.Duration
}

// TimeLeft returns what is left of a TTL lease. It fails as Renew does.
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
	// As of the last tick or now, whichever makes it shorter.
	return Left{TTLLease: l, Time: time.Duration(max(max(e.deadline, r.mu.graceEnd)-r.nowLocked(), 0))}
}
