package kvnode

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/ttl"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
)

// newTTL makes what counts the time of TTL leases while this member leads.
func (n *Node) newTTL() *ttl.Engine {
	c := n.cfg.Clock
	if c == nil {
		c = clock.System()
	}
	return ttl.New(ttl.Config{
		Member: ttlMember{n}, Store: n.store, Clock: c,
		// A longer pause counts nothing, whoever leads.
		MaxGap: n.cfg.ElectionTimeout / 2,
		// Clients whose connection broke look elsewhere first. They have as long from the death of
		// a leader on, whether it was replaced when its promise ended or after silence.
		Grace:      n.cfg.ElectionTimeout*3/2 + n.cfg.ElectionTimeout - n.lease.Info().Duration,
		Checkpoint: n.cfg.TTLCheckpoint, Logger: n.cfg.Logger,
	})
}

// ttlChanged is called by the applier.
func (n *Node) ttlChanged(l store.TTLLease) { n.ttl.Changed(l) }

// MinTTL returns the shortest TTL in seconds: who asks for less is given that.
func (n *Node) MinTTL() int64 { return ttl.MinTTL(n.cfg.electionTicks(), n.cfg.TickInterval) }

// RenewTTL begins the time of a TTL lease anew and returns its TTL in seconds. It
// fails with ErrNotLeader on a member that does not lead, and with
// rpctypes.ErrGRPCLeaseNotFound if there is no such TTL lease.
func (n *Node) RenewTTL(ctx context.Context, id int64) (int64, error) {
	ctx, cancel := n.cfg.bounded(ctx)
	defer cancel()
	left, err := n.ttl.Renew(ctx, id)
	return left, n.ttlError(ctx, err)
}

// TTLLeft returns what is left of a TTL lease. It fails as RenewTTL does.
func (n *Node) TTLLeft(ctx context.Context, id int64) (ttl.Left, error) {
	ctx, cancel := n.cfg.bounded(ctx)
	defer cancel()
	left, err := n.ttl.TimeLeft(ctx, id)
	return left, n.ttlError(ctx, err)
}

// TTLStats returns what this member, as leader, has done for TTL leases.
func (n *Node) TTLStats() ttl.Stats { return n.ttl.Stats() }

// ttlError says it in this package's terms.
func (n *Node) ttlError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case n.life.IsStopping():
		return ErrStopped
	case errors.Is(err, ttl.ErrNotLeader):
		return ErrNotLeader
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return ErrTimeout
	default:
		return err
	}
}

// ttlMember is the node as its TTL engine sees it.
type ttlMember struct{ node *Node }

var _ ttl.Member = ttlMember{}

// Reign implements ttl.Member.
func (m ttlMember) Reign() (term uint64, over <-chan struct{}) {
	now := m.node.leadership.current.Load()
	if now.id != m.node.leadership.self {
		return 0, now.changed
	}
	return now.term, now.changed
}

// Standing implements ttl.Member. A disk that hangs counts even if there is no
// leader lease: what is proposed now would only be replicated, and answered,
// whenever the disk comes back.
func (m ttlMember) Standing() leaderlease.Status {
	if m.node.disk.stuck.Load() {
		return leaderlease.StatusDiskStalled
	}
	_, status := m.node.lease.TryRead()
	return status
}

// Confirm implements ttl.Member. Under a valid leader lease it does not wait.
func (m ttlMember) Confirm(ctx context.Context, term uint64) error {
	if reign, _ := m.Reign(); reign != term {
		return ErrNotLeader
	}
	r, err := m.node.lease.Read(ctx)
	if errors.Is(err, leaderlease.ErrNoLease) {
		return ErrNotLeader
	}
	if err != nil {
		return err
	}
	// Once deposed, a member gets its index from the new leader.
	if r.Path == leaderlease.PathForwarded || r.Term != term {
		return ErrNotLeader
	}
	return nil
}

// ProposeFenced implements ttl.Member.
func (m ttlMember) ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest, grants []uint64) (store.Result, error) {
	return m.node.proposals.Submit(ctx, &store.Command{Fence: term, Request: r, Grants: grants})
}
