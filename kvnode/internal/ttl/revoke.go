package ttl

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// revoke proposes to revoke e until it is gone or the reign is over. Whether a
// proposal that failed takes effect is not known, so e cannot be renewed any more
// once there was one. A TTL lease that was granted under its ID meanwhile is another.
func (r *reign) revoke(e *entry) {
	for proposed := false; r.counts(e); {
		if r.holds() {
			proposed = true
			if r.revokeOnce(e) {
				return
			}
		} else if !proposed {
			r.spare(e)
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
func (r *reign) revokeOnce(e *entry) (over bool) {
	var grants []uint64
	if r.names() {
		grants = []uint64{e.Grant}
	}
	// Not before that: holds may have waited, and whatever was granted without a number
	// is known once the format has numbers. So an e that still counts is the only one
	// of its ID that has none.
	if !r.counts(e) {
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
	r.complain.Do(func() {
		r.cfg.Logger.Warn("a TTL lease could not be revoked", "ttl_lease", fmt.Sprintf("%x", uint64(e.ID)), "error", errors.Join(err, res.Err))
	})
	return false
}

// names reports whether what is proposed says which grants it means. Members that are
// older than that would not know such a command.
func (r *reign) names() bool { return r.cfg.Store.Format() >= store.FormatGrants }

// spare takes e back: it turned out that nothing may be proposed.
func (r *reign) spare(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.leases[e.ID] != e {
		return // gone, and closed
	}
	close(e.revoking)
	e.revoking = nil
	r.mu.fresh = append(r.mu.fresh, e)
}
