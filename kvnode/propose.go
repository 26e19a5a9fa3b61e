package kvnode

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// maxUncommittedBytes limits the entries that a leader's raft has taken and that are not applied yet. It is also
// the quota of each follower for forwarded proposals that wait until raft takes them. With a smaller limit, large
// writes wait for each other if the quorum is far away.
const maxUncommittedBytes = 8 << 20

// FailWithoutLeader is the type of a context key. A request with this key in its context fails with ErrNoLeader
// once it has waited without a leader for an election timeout, unless raft has taken the request. Other requests wait
// for a leader until their context ends, or for RequestTimeout.
// docs/operations/change.md has all cases, under "Without a quorum".
type FailWithoutLeader = proposals.FailWithoutLeader

// Propose replicates r and returns the result of applying it. Result.Err is the error of the request itself. The
// returned error means that this member has no result: after ErrTooLarge, ErrTooManyRequests, ErrDiskFull and
// ErrNoLeader nothing was done; after ErrLeaderChanged, ErrTimeout, ErrStopped and ctx's error r may or may not take
// effect. It takes effect at most once (docs/adr/0027-proposed-again.md).
func (n *Node) Propose(ctx context.Context, r *pb.InternalRaftRequest) (store.Result, error) {
	return n.proposals.Submit(ctx, &store.Command{Request: r})
}

// ProposeFenced is Propose for work that only the leader of term may do: r has no effect in another term. It is not
// for TTL leases: a LeaseRevoke or LeaseCheckpoint must name generations (ttlMember.ProposeFenced), or newer cluster
// versions refuse it with store.ErrNoGeneration.
func (n *Node) ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest) (store.Result, error) {
	return n.proposals.Submit(ctx, &store.Command{RequiredTerm: term, Request: r})
}

// queueRaft is the raft loop as its queue of proposals uses it. All its methods run on the loop's goroutine.
type queueRaft struct{ loop *raftLoop }

var _ proposals.Raft = queueRaft{}

// State implements proposals.Raft.
func (q queueRaft) State() proposals.State {
	l := q.loop
	return proposals.State{
		Leads: l.role == raft.StateLeader, Leader: l.leadership.Leader(), Term: l.leadership.Term(),
		Last: l.last.Load(), Commit: l.commit, Applied: l.raftApplied.Load(),
	}
}

// HandleReadys implements proposals.Raft.
func (q queueRaft) HandleReadys() { q.loop.handleReadys() }

// Step implements proposals.Raft.
func (q queueRaft) Step(m *raftpb.Message) error { return q.loop.raw.Step(m) }

// CanSend implements proposals.Raft.
func (q queueRaft) CanSend(to uint64, m *raftpb.Message) bool { return q.loop.links.Takes(to, m) }
