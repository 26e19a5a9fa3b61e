package kvnode

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/ttl"
	"github.com/leaderlease/go/leaderlease"
)

// newTTL returns the engine that counts the time of TTL leases while this member leads.
func newTTL(cfg *Config, st *store.Store, member ttlMember) *ttl.Engine {
	return ttl.New(ttl.Config{
		Member: member, Store: st, Clock: cfg.Clock,
		MaxGap: cfg.ElectionTimeout / 2,
		// A client that has lost its leader first looks for another member. With shorter promises
		// the next leader begins sooner, so it must wait longer for the client.
		Grace:      cfg.ElectionTimeout*3/2 + cfg.ElectionTimeout - member.lease.Info().Duration,
		Checkpoint: cfg.TTLCheckpoint, Logger: cfg.Logger,
	})
}

// MinTTL returns the shortest TTL in seconds. A lease that a client requests with a shorter one gets this TTL.
func (n *Node) MinTTL() int64 { return ttl.MinTTL(n.cfg.electionTicks(), n.cfg.TickInterval) }

// RenewTTL restarts the time of a TTL lease and returns its TTL in seconds. It fails with ErrNotLeader on a
// member that does not lead, and with rpctypes.ErrGRPCLeaseNotFound if there is no such TTL lease.
func (n *Node) RenewTTL(ctx context.Context, id int64) (int64, error) {
	ctx, cancel := n.cfg.bounded(ctx)
	defer cancel()
	left, err := n.ttl.Renew(ctx, id)
	return left, ttlError(ctx, n.life.IsStopping(), err)
}

// TTLLeft returns the remaining time of a TTL lease. It fails as RenewTTL does.
func (n *Node) TTLLeft(ctx context.Context, id int64) (ttl.Left, error) {
	ctx, cancel := n.cfg.bounded(ctx)
	defer cancel()
	left, err := n.ttl.TimeLeft(ctx, id)
	return left, ttlError(ctx, n.life.IsStopping(), err)
}

// ttlError returns the error of this package for an error of the TTL engine.
func ttlError(ctx context.Context, stopping bool, err error) error {
	switch {
	case err == nil:
		return nil
	case stopping:
		return ErrStopped
	case errors.Is(err, ttl.ErrNotLeader):
		return ErrNotLeader
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return ErrTimeout
	default:
		return err
	}
}

// ttlMember is this member as its TTL engine uses it.
type ttlMember struct {
	leadership *leadership
	lease      *leaderlease.Lease
	proposals  *proposals.Pending
	diskStuck  func() bool // reports whether the disk does not answer
}

var _ ttl.Member = ttlMember{}

// Leadership implements ttl.Member.
func (m ttlMember) Leadership() (term uint64, over <-chan struct{}) {
	now := m.leadership.current.Load()
	if now.id != m.leadership.self {
		return 0, now.changed
	}
	return now.term, now.changed
}

// LeaseStatus implements ttl.Member. A disk that hangs comes before a valid lease, since revocations would
// wait for the disk.
func (m ttlMember) LeaseStatus() leaderlease.Status {
	if m.diskStuck() {
		return leaderlease.StatusDiskStalled
	}
	_, status := m.lease.TryRead()
	return status
}

// Confirm implements ttl.Member. Under a valid leader lease it waits only for the applier.
func (m ttlMember) Confirm(ctx context.Context, term uint64) error {
	if leading, _ := m.Leadership(); leading != term {
		return ErrNotLeader
	}
	r, err := m.lease.Read(ctx)
	if errors.Is(err, leaderlease.ErrNoLease) {
		return ErrNotLeader
	}
	if err != nil {
		return err
	}
	// A deposed member gets its index from the new leader.
	if r.Path == leaderlease.PathForwarded || r.Term != term {
		return ErrNotLeader
	}
	return nil
}

// ProposeFenced implements ttl.Member.
func (m ttlMember) ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest, generations []uint64) (store.Result, error) {
	return m.proposals.Submit(ctx, &store.Command{RequiredTerm: term, Request: r, Generations: generations})
}
