package ttl

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// revoke proposes to revoke e until it is gone or the reign is over. Whether a
// proposal that failed takes effect is not known, so e cannot be renewed any more
// once there was one. A TTL lease that was granted under its ID meanwhile is another.
func (r *leadership) revoke(e *entry) {
	for proposed := false; r.isCurrent(e); {
		if r.holds() {
			proposed = true
			if r.revokeOnce(e) {
				return
			}
		} else if !proposed {
			r.abandonRevocation(e)
			return
		}
		pause := time.NewTimer(retryPause)
		select {
		case <-r.ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// revokeOnce reports whether e is gone, or can no longer be revoked.
func (r *leadership) revokeOnce(e *entry) (over bool) {
	var grants []uint64
	if r.namesGrants() {
		grants = []uint64{e.Grant}
	}
	// Not before that: holds may have waited, and whatever was granted without a number
	// is known once the format has numbers. So an e that still counts is the only one
	// of its ID that has none.
	if !r.isCurrent(e) {
		return true
	}
	req := &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: e.ID}}
	res, err := r.cfg.Member.ProposeFenced(r.ctx, r.term, req, grants)
	switch {
	case r.ctx.Err() != nil:
		return true
	case err == nil && res.Err == nil:
		r.stats.expirations.Add(1)
		return true
	case errors.Is(res.Err, store.ErrNoGrant) && grants == nil:
		return r.revokeOnce(e) // the format was raised before it: now there are names
	case errors.Is(res.Err, rpctypes.ErrGRPCLeaseNotFound), errors.Is(res.Err, store.ErrFenced):
		// Nobody waits for e any more: changed has dropped it, for the store knew that it
		// was gone or another's; or another leads, and the reign ends.
		return true
	}
	r.logLimit.Do(func() {
		r.cfg.Logger.Warn("a TTL lease could not be revoked", "ttl_lease", fmt.Sprintf("%x", uint64(e.ID)), "error", errors.Join(err, res.Err))
	})
	return false
}

// names reports whether what is proposed says which grants it means. Members that are
// older than that would not know such a command.
func (r *leadership) namesGrants() bool { return r.cfg.Store.Format() >= store.FormatGrants }

// spare takes e back: it turned out that nothing may be proposed.
func (r *leadership) abandonRevocation(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leases[e.ID] != e {
		return // gone, and closed
	}
	close(e.revoking)
	e.revoking = nil
	r.mu.unqueued = append(r.mu.unqueued, e)
}

// checkpoint writes what is left of long TTL leases to the log where that is due,
// up to maxBatch of them at a time.
func (r *leadership) checkpoint() {
	if r.cfg.Checkpoint <= 0 {
		return
	}
	batch := r.dueCheckpoints()
	if len(batch) == 0 {
		return
	}
	r.workers.Go(func() {
		// Whether it failed or not, the log may hold it.
		if err := r.proposeCheckpoint(batch); err != nil && r.ctx.Err() == nil {
			r.logLimit.Do(func() {
				r.cfg.Logger.Warn("no checkpoint of TTL leases", "count", len(batch), "error", err)
			})
		}
		for _, c := range batch {
			r.checkpointDone(c.entry, true)
		}
	})
}

// remaining is what is left of a TTL lease in seconds, 0 meaning all.
type remaining struct {
	*entry
	left int64
}

// dueCheckpoints marks the TTL leases that it returns as being saved. By their IDs
// alone a checkpoint might mean others by then, and shorten their lives.
func (r *leadership) dueCheckpoints() (batch []remaining) {
	every := servedTime(r.cfg.Checkpoint)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.now < r.mu.nextCheckpoint || !r.namesGrants() {
		return nil
	}
	// It costs a look at each, so it is done now and then.
	r.mu.nextCheckpoint = r.mu.now + every/10
	for _, e := range r.mu.leases {
		left := e.deadline - r.mu.now
		if e.checkpointing != nil || e.revoking != nil || r.mu.now < e.checkpointAt || seconds(e.TTL) <= every || left <= 0 {
			continue
		}
		e.checkpointing = make(chan struct{})
		batch = append(batch, remaining{e, int64((time.Duration(left) + time.Second - 1) / time.Second)})
		if len(batch) == maxBatch {
			r.mu.nextCheckpoint = r.mu.now // there may be more
			break
		}
	}
	slices.SortFunc(batch, func(a, b remaining) int { return cmp.Compare(a.ID, b.ID) })
	return batch
}

// takeBack has the log forget what is left of a TTL lease that was renewed.
func (r *leadership) resetCheckpoint(e *entry) error {
	err := r.proposeCheckpoint([]remaining{{entry: e}})
	r.checkpointDone(e, err != nil)
	return err
}

func (r *leadership) checkpointDone(e *entry, saved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leases[e.ID] != e {
		return // gone, and closed
	}
	e.checkpointed = saved
	e.checkpointAt = r.mu.now + servedTime(r.cfg.Checkpoint)
	close(e.checkpointing)
	e.checkpointing = nil
}

// remember has the log hold what is left. Without names it must be all of it: for
// whatever has the IDs that is no loss.
func (r *leadership) proposeCheckpoint(batch []remaining) error {
	req := &pb.LeaseCheckpointRequest{}
	var grants []uint64
	named := r.namesGrants()
	for _, c := range batch {
		if named {
			grants = append(grants, c.Grant)
		}
		req.Checkpoints = append(req.Checkpoints, &pb.LeaseCheckpoint{ID: c.ID, Remaining_TTL: c.left})
	}
	res, err := r.cfg.Member.ProposeFenced(r.ctx, r.term, &pb.InternalRaftRequest{LeaseCheckpoint: req}, grants)
	if errors.Is(res.Err, store.ErrNoGrant) && !named {
		return r.proposeCheckpoint(batch) // the format was raised before it: now there are names
	}
	err = errors.Join(err, res.Err)
	if err == nil {
		r.stats.checkpoints.Add(uint64(len(batch)))
	}
	return err
}
