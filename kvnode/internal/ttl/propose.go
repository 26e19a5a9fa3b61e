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

// revoke proposes to revoke e until e is gone or the leadership ends. A proposal that failed may still take effect,
// so e cannot be renewed after the first one. If a lease is granted again under the ID, e is gone.
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
	var generations []uint64
	if r.namesGenerations() {
		generations = []uint64{e.Generation}
	}
	// e is checked after the cluster version was read: holds may have waited, and e may be gone. All leases that were
	// granted before the cluster version rose are known by then (Store.ClusterVersion). So if e has no generation, it
	// is the only lease without one under its ID.
	if !r.isCurrent(e) {
		return true
	}
	req := &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: e.ID}}
	res, err := r.cfg.Member.ProposeFenced(r.ctx, r.term, req, generations)
	switch {
	case r.ctx.Err() != nil:
		return true
	case err == nil && res.Err == nil:
		r.stats.expirations.Add(1)
		return true
	case errors.Is(res.Err, store.ErrNoGeneration) && generations == nil:
		return r.revokeOnce(e) // the cluster version rose before the proposal was applied: retry with generations
	case errors.Is(res.Err, rpctypes.ErrGRPCLeaseNotFound), errors.Is(res.Err, store.ErrFenced):
		// No keep-alive waits for e: changed has dropped it because the lease is gone or
		// granted again, or another member leads and the leadership ends.
		return true
	}
	r.logLimit.Do(func() {
		r.cfg.Logger.Warn("cannot revoke a TTL lease", "ttl_lease", fmt.Sprintf("%x", uint64(e.ID)), "error", errors.Join(err, res.Err))
	})
	return false
}

// namesGenerations reports whether proposals name generations. Members of older versions do not know commands with
// generations.
func (r *leadership) namesGenerations() bool {
	return r.cfg.Store.ClusterVersion() >= store.ClusterVersionGenerations
}

// abandonRevocation makes e renewable again. It is called if nothing was proposed.
func (r *leadership) abandonRevocation(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leases[e.ID] != e {
		return // gone, and its channels are closed
	}
	close(e.revoking)
	e.revoking = nil
	r.mu.unqueued = append(r.mu.unqueued, e)
}

// checkpoint writes the remaining time of long TTL leases to the log when it is due, up to maxBatch
// leases at a time.
func (r *leadership) checkpoint() {
	if r.cfg.Checkpoint <= 0 {
		return
	}
	batch := r.dueCheckpoints()
	if len(batch) == 0 {
		return
	}
	r.workers.Go(func() {
		// The log may contain the checkpoint even if the proposal failed.
		if err := r.proposeCheckpoint(batch); err != nil && r.ctx.Err() == nil {
			r.logLimit.Do(func() {
				r.cfg.Logger.Warn("cannot checkpoint TTL leases", "count", len(batch), "error", err)
			})
		}
		for _, c := range batch {
			r.checkpointDone(c.entry, true)
		}
	})
}

// remaining is the remaining time of a TTL lease in seconds, 0 meaning the full TTL.
type remaining struct {
	*entry
	left int64
}

// dueCheckpoints returns the TTL leases to checkpoint and marks them. It needs generations: with
// IDs alone, the checkpoint could apply to a lease that is granted later, and shorten its life.
func (r *leadership) dueCheckpoints() (batch []remaining) {
	every := servedTime(r.cfg.Checkpoint)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.now < r.mu.nextCheckpoint || !r.namesGenerations() {
		return nil
	}
	// The loop visits all leases, so it does not run at each tick.
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

// resetCheckpoint resets the remaining time of a renewed TTL lease in the log.
func (r *leadership) resetCheckpoint(e *entry) error {
	err := r.proposeCheckpoint([]remaining{{entry: e}})
	r.checkpointDone(e, err != nil)
	return err
}

// checkpointDone ends the write of e's remaining time. saved is set if the log may hold less than the full TTL.
func (r *leadership) checkpointDone(e *entry, saved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leases[e.ID] != e {
		return // gone, and its channels are closed
	}
	e.checkpointed = saved
	e.checkpointAt = r.mu.now + servedTime(r.cfg.Checkpoint)
	close(e.checkpointing)
	e.checkpointing = nil
}

// proposeCheckpoint writes remaining times to the log. Without generations all of them must be 0:
// the full TTL harms no lease.
func (r *leadership) proposeCheckpoint(batch []remaining) error {
	req := &pb.LeaseCheckpointRequest{}
	var generations []uint64
	named := r.namesGenerations()
	for _, c := range batch {
		if named {
			generations = append(generations, c.Generation)
		}
		req.Checkpoints = append(req.Checkpoints, &pb.LeaseCheckpoint{ID: c.ID, Remaining_TTL: c.left})
	}
	res, err := r.cfg.Member.ProposeFenced(r.ctx, r.term, &pb.InternalRaftRequest{LeaseCheckpoint: req}, generations)
	if errors.Is(res.Err, store.ErrNoGeneration) && !named {
		return r.proposeCheckpoint(batch) // the cluster version rose in between: retry with generations
	}
	err = errors.Join(err, res.Err)
	if err == nil {
		r.stats.checkpoints.Add(uint64(len(batch)))
	}
	return err
}
