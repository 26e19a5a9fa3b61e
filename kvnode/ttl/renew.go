package ttl

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/store"
)

// Renew begins the time of a TTL lease anew and returns its TTL in seconds. It
// fails with ErrNotLeader on a member that does not lead, with
// rpctypes.ErrGRPCLeaseNotFound if there is no such TTL lease, and with what
// Confirm returns.
func (e *Engine) Renew(ctx context.Context, id int64) (int64, error) {
	r := e.reign.Load()
	if r == nil {
		return 0, ErrNotLeader
	}
	if err := e.cfg.Member.Confirm(ctx, r.term); err != nil {
		return 0, err
	}
	for {
		// The store knows what there is; the reign, what time is left.
		l, ok := e.cfg.Leases.TTLLease(id)
		if !ok {
			return 0, rpctypes.ErrGRPCLeaseNotFound
		}
		wait, takeBack := r.renew(l)
		if takeBack {
			if err := r.takeBack(l.ID); err != nil {
				return 0, err
			}
			continue
		}
		if wait == nil {
			e.stats.renewals.Add(1)
			return l.TTL, nil
		}
		select {
		case <-wait:
		case <-r.ctx.Done():
			return 0, ErrNotLeader
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// renew moves the deadline of l. If wait is not nil, something is under way that
// must be waited for before it is tried again; if takeBack is set, the log may hold
// less than the TTL, and the caller must have that taken back.
func (r *reign) renew(l store.TTLLease) (wait <-chan struct{}, takeBack bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.mu.leases[l.ID]
	if e == nil {
		e = r.adoptLocked(l)
	}
	if e.revoking != nil {
		return e.revoking, false
	}
	now := r.nowLocked()
	e.deadline = max(e.deadline, now.after(l.TTL))
	e.save = now + served(r.cfg.Checkpoint)
	switch {
	case e.saving != nil:
		return e.saving, false
	case e.saved:
		e.saving = make(chan struct{})
		return nil, true
	}
	return nil, false
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
	r := e.reign.Load()
	if r == nil {
		return Left{}, ErrNotLeader
	}
	if err := e.cfg.Member.Confirm(ctx, r.term); err != nil {
		return Left{}, err
	}
	l, ok := e.cfg.Leases.TTLLease(id)
	if !ok {
		return Left{}, rpctypes.ErrGRPCLeaseNotFound
	}
	return Left{TTLLease: l, Time: r.left(l)}, nil
}

func (r *reign) left(l store.TTLLease) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.mu.leases[l.ID]
	if e == nil {
		e = r.adoptLocked(l)
	}
	if e.revoking != nil {
		return 0
	}
	// As of the last tick or now, whichever makes it shorter.
	return time.Duration(max(max(e.deadline, r.mu.floor)-r.nowLocked(), 0))
}
