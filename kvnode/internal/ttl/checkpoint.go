package ttl

import (
	"cmp"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// checkpoint writes what is left of long TTL leases to the log where that is due,
// up to maxBatch of them at a time.
func (r *reign) checkpoint() {
	if r.cfg.Checkpoint <= 0 {
		return
	}
	batch := r.dueCheckpoints()
	if len(batch) == 0 {
		return
	}
	r.workers.Go(func() {
		// Whether it failed or not, the log may hold it.
		if err := r.remember(batch); err != nil && r.ctx.Err() == nil {
			r.complain.Do(func() {
				r.cfg.Logger.Warn("no checkpoint of TTL leases", "count", len(batch), "error", err)
			})
		}
		for _, c := range batch {
			r.savedAs(c.entry, true)
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
func (r *reign) dueCheckpoints() (batch []remaining) {
	every := served(r.cfg.Checkpoint)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.now < r.mu.nextSave || !r.names() {
		return nil
	}
	// It costs a look at each, so it is done now and then.
	r.mu.nextSave = r.mu.now + every/10
	for _, e := range r.mu.leases {
		left := e.deadline - r.mu.now
		if e.saving != nil || e.revoking != nil || r.mu.now < e.save || seconds(e.TTL) <= every || left <= 0 {
			continue
		}
		e.saving = make(chan struct{})
		batch = append(batch, remaining{e, int64((time.Duration(left) + time.Second - 1) / time.Second)})
		if len(batch) == maxBatch {
			r.mu.nextSave = r.mu.now // there may be more
			break
		}
	}
	slices.SortFunc(batch, func(a, b remaining) int { return cmp.Compare(a.ID, b.ID) })
	return batch
}

// takeBack has the log forget what is left of a TTL lease that was renewed.
func (r *reign) takeBack(e *entry) error {
	err := r.remember([]remaining{{entry: e}})
	r.savedAs(e, err != nil)
	return err
}

func (r *reign) savedAs(e *entry, saved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leases[e.ID] != e {
		return // gone, and closed
	}
	e.saved = saved
	e.save = r.mu.now + served(r.cfg.Checkpoint)
	close(e.saving)
	e.saving = nil
}

// remember has the log hold what is left. Without names it must be all of it: for
// whatever has the IDs that is no loss.
func (r *reign) remember(batch []remaining) error {
	req := &pb.LeaseCheckpointRequest{}
	var grants []uint64
	named := r.names()
	for _, c := range batch {
		if named {
			grants = append(grants, c.Grant)
		}
		req.Checkpoints = append(req.Checkpoints, &pb.LeaseCheckpoint{ID: c.ID, Remaining_TTL: c.left})
	}
	res, err := r.cfg.Member.ProposeFenced(r.ctx, r.term, &pb.InternalRaftRequest{LeaseCheckpoint: req}, grants)
	if errors.Is(res.Err, store.ErrNoGrant) && !named {
		return r.remember(batch) // the format was raised before it: now there are names
	}
	err = errors.Join(err, res.Err)
	if err == nil {
		r.stats.checkpoints.Add(uint64(len(batch)))
	}
	return err
}
