package kvnode

import (
	"cmp"
	"context"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

var (
	// ErrMemberExists means that the cluster has a member with one of these peer URLs.
	ErrMemberExists = membership.ErrMemberExists
	// ErrMemberNotFound means that there is no member with that ID.
	ErrMemberNotFound = membership.ErrMemberNotFound
	// ErrNotLearner means that a voter cannot be promoted.
	ErrNotLearner = membership.ErrNotLearner
	// ErrLearnerNotReady means that the learner is too far behind to be promoted, or silent.
	ErrLearnerNotReady = membership.ErrLearnerNotReady
	// ErrTooManyLearners means that the cluster has a learner already.
	ErrTooManyLearners = membership.ErrTooManyLearners
	// ErrNotStarted means that the change could leave the cluster without a quorum of members that have started at
	// least once: the last voter cannot be removed, for example.
	ErrNotStarted = membership.ErrNotStarted
	// ErrUnhealthy means that too few voters are connected for the change: it could cost the cluster its quorum.
	ErrUnhealthy = membership.ErrUnhealthy
	// ErrRemoved means that this member was removed from the cluster.
	ErrRemoved = membership.ErrRemoved
)

// AddMember adds a member that listens for its peers at peerURLs, as a learner or as a voter, and returns it. The
// member is then started with Config.Existing.
func (n *Node) AddMember(ctx context.Context, peerURLs []string, learner bool) (store.Member, error) {
	ctx, cancel := n.cfg.bounded(ctx)
	defer cancel()
	return n.membership.changer.Add(ctx, peerURLs, learner)
}

// PromoteMember makes a learner a voter. Members other than the leader do not know whether it is up to date, and fail
// with ErrNotLeader.
func (n *Node) PromoteMember(ctx context.Context, id uint64) error {
	ctx, cancel := n.cfg.bounded(ctx)
	defer cancel()
	return n.membership.changer.Promote(ctx, id)
}

// UpdateMember replaces the peer URLs of a member.
func (n *Node) UpdateMember(ctx context.Context, id uint64, peerURLs []string) error {
	ctx, cancel := n.cfg.bounded(ctx)
	defer cancel()
	return n.membership.changer.Update(ctx, id, peerURLs)
}

// RemoveMember removes a member, which then stops itself. Its ID is never used again. When RemoveMember returns nil,
// every majority of the remaining members can elect a leader without the removed one. Until then, keep the removed
// member running.
func (n *Node) RemoveMember(ctx context.Context, id uint64) error {
	ctx, cancel := n.cfg.bounded(ctx)
	defer cancel()
	return n.membership.changer.Remove(ctx, id)
}

// openMembership creates the components of package membership. It is called after transport.Start, and before a peer
// is admitted (peers.Admit).
func openMembership(n *Node) {
	n.membership.removals = membership.NewRemovalAcks(membership.RemovalConfig{
		Self: n.ID(), Registry: n.store, Life: n.life, Advice: n.cfg.adviceReplace(n.ID()),
		TickInterval: n.cfg.TickInterval, ElectionTimeout: n.cfg.ElectionTimeout,
	})
	n.membership.changer = membership.NewChanger(membership.ChangerConfig{
		Self: n.ID(), Token: n.cfg.Token, Registry: n.store, Proposer: changeProposer{&n.cfg, n.leadership, n.proposals, &n.calls}, Removals: n.membership.removals,
		Connected: func() map[uint64]bool { return connected(n.links) }, Life: n.life, LaxReconfig: n.cfg.LaxReconfig,
		TickInterval: n.cfg.TickInterval, ElectionTimeout: n.cfg.ElectionTimeout,
	})
	n.membership.routes = membership.NewRoutes(membership.RoutesConfig{
		List: n.members, Links: n.links, Certificates: n.cfg.requiresCertificates(),
		Changed: func() {
			if n.cfg.Supervisor != nil {
				n.cfg.Supervisor.SetPeers(n.links.PeersToNotify())
			}
		},
		FoundsAlone: len(n.cfg.Cluster) == 1 && !n.cfg.Existing, Log: n.log,
	})
	n.membership.rollback = membership.NewRollbackDetector()
	n.membership.gate = membership.NewGate(membership.GateConfig{
		List: n.members, Instances: membership.NewInstances(membership.InstancesConfig{Store: n.store, Log: n.wal, Links: n.links}),
		Rollback: n.membership.rollback, Routes: n.membership.routes, Certificates: n.cfg.requiresCertificates(),
		ClusterVersion: n.store.ClusterVersion, IsCurrent: n.replay.isOver, Log: n.log,
	})
	n.membership.dataLoss = membership.NewDataLoss(membership.DataLossConfig{
		List: n.members, Life: n.life, Advice: n.cfg.adviceReplace(n.ID()),
		SaveLost: func(proof string) bool { return saveIdentity(n, func(id *memberdir.Identity) { id.Lost = proof }) },
		AtStart:  n.atStart, Present: func() (term, last uint64) { return n.Term(), n.last.Load() }, Log: n.log,
	})
}

// newOwnAdmission returns the admission of this member, which belongs to the loop.
func newOwnAdmission(n *Node) *membership.OwnAdmission {
	return membership.NewOwnAdmission(membership.OwnAdmissionConfig{
		Self: n.ID(), Identity: &n.id, List: n.members, Life: n.life, Advice: n.cfg.adviceForeign(n.id.Joined), Log: n.log,
		SaveAdmitted: func() bool { return saveIdentity(n, func(id *memberdir.Identity) { id.Admitted = true }) },
		Opened:       func() { n.loop.admitted() },
	})
}

// connected reports, by ID, whether this member is connected to a peer.
func connected(links *transport.Transport) map[uint64]bool {
	up := make(map[uint64]bool)
	for _, p := range links.Peers() {
		up[p.ID] = p.Connected
	}
	return up
}

type changeProposer struct {
	cfg        *Config
	leadership *leadership
	proposals  *proposals.Pending
	calls      *calls
}

// NextID implements membership.Proposer.
func (p changeProposer) NextID() uint64 { return p.proposals.NextID() }

// ProposeChange implements membership.Proposer.
func (p changeProposer) ProposeChange(ctx context.Context, id uint64, entry *raftpb.Entry) error {
	if size := len(entry.GetData()); size > p.cfg.MaxRequestBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, p.cfg.MaxRequestBytes)
	}
	r, err := p.proposals.SubmitChange(ctx, id, entry)
	return cmp.Or(err, r.Err)
}

// ProposeEmpty implements membership.Proposer.
func (p changeProposer) ProposeEmpty(ctx context.Context) error {
	_, err := p.proposals.Submit(ctx, &store.Command{})
	return err
}

// IsUpToDate implements membership.Proposer. A learner is up to date when it has nine tenths of the leader's log,
// as in etcd, and answers.
func (p changeProposer) IsUpToDate(id uint64) (bool, error) {
	if !p.leadership.Leads() {
		return false, ErrNotLeader
	}
	return ask(context.Background(), p.calls, func(l *raftLoop) bool {
		progress := l.raw.Status().Progress
		return float64(progress[id].Match) >= 0.9*float64(progress[l.self].Match) && progress[id].RecentActive
	})
}

// joiner returns a Joiner, which asks the other members of an existing cluster for this member's identity.
func (c *Config) joiner() *membership.Joiner {
	return &membership.Joiner{Owner: c.owner(), Dial: c.Dial, JoinTimeout: c.RequestTimeout, CheckTimeout: c.ElectionTimeout, Advice: c.adviceReplace}
}

// checkJoins fails with ErrForeignCluster if the data directory was made for another cluster than Cluster
// names: the member, which was never admitted, could wait forever.
func (c *Config) checkJoins(id *memberdir.Identity) error {
	there := c.joiner().ForeignCluster(id.ClusterID)
	if there == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s is of cluster %x, which this member never joined, but the one to join is %x; %s",
		ErrForeignCluster, c.dir().Path(memberdir.IdentityFile), id.ClusterID, there, adviceJoinAgain)
}

// Shown returns text from another program, such as the name of a member, in a form for terminals and logs: one short
// line, and quoted if a terminal would interpret it.
func Shown(s string) string { return transport.Shown(s) }
