package ttl

import (
	"cmp"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
		if err := r.propose(batch); err != nil && r.ctx.Err() == nil {
			r.cfg.Logger.Warn("ttl: no checkpoint of TTL leases", "count", len(batch), "error", err)
		}
		for _, c := range batch {
			r.savedAs(c.GetID(), true)
		}
	})
}

// dueCheckpoints marks the TTL leases that it returns as being saved.
func (r *reign) dueCheckpoints() (batch []*pb.LeaseCheckpoint) {
	every := served(r.cfg.Checkpoint)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.now < r.mu.nextSave {
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
		batch = append(batch, &pb.LeaseCheckpoint{ID: e.ID, Remaining_TTL: int64((time.Duration(left) + time.Second - 1) / time.Second)})
		if len(batch) == maxBatch {
			r.mu.nextSave = r.mu.now // there may be more
			break
		}
	}
	slices.SortFunc(batch, func(a, b *pb.LeaseCheckpoint) int { return cmp.Compare(a.GetID(), b.GetID()) })
	return batch
}

// takeBack has the log forget what is left of a TTL lease that was renewed.
func (r *reign) takeBack(id int64) error {
	err := r.propose([]*pb.LeaseCheckpoint{{ID: id}})
	r.savedAs(id, err != nil)
	return err
}

func (r *reign) savedAs(id int64, saved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.mu.leases[id]
	if e == nil || e.saving == nil {
		return
	}
	e.saved = saved
	e.save = r.mu.now + served(r.cfg.Checkpoint)
	close(e.saving)
	e.saving = nil
}

func (r *reign) propose(batch []*pb.LeaseCheckpoint) error {
	res, err := r.cfg.Member.ProposeFenced(r.ctx, r.term, &pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{Checkpoints: batch}})
	err = errors.Join(err, res.Err)
	if err == nil {
		r.stats.checkpoints.Add(uint64(len(batch)))
	}
	return err
}
