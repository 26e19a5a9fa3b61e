package kvnode

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// maxUncommittedBytes is the size of entries that a leader's raft takes and that are not applied, and the quota
// of each follower for proposals that wait for that. A leader with a slow quorum keeps that much in memory, and
// as much again for each follower. With a smaller limit large writes wait for each other where the quorum is
// far away.
const maxUncommittedBytes = 8 << 20

// FailWithoutLeader is the type of a context key. A request with a value for it in its context fails with
// ErrNoLeader if no leader is known for an election timeout while the request waits, and nothing was done
// yet. Other requests wait for a leader until their context ends, or for RequestTimeout.
// docs/operations/change.md says why, under "Without a quorum".
type FailWithoutLeader = proposals.FailWithoutLeader

// Propose replicates r and returns the result of applying it; Result.Err is the request's own failure. The
// error is about the way there: after ErrTooLarge, ErrTooManyRequests, ErrDiskFull and ErrNoLeader nothing
// was done. After ErrLeaderChanged, ErrTimeout, ErrStopped and ctx's error r may or may not take effect. It
// takes effect at most once (docs/adr/0027-proposed-again.md).
func (n *Node) Propose(ctx context.Context, r *pb.InternalRaftRequest) (store.Result, error) {
	return n.proposals.Submit(ctx, &store.Command{Request: r})
}

// ProposeFenced is Propose for work that only the leader of term may do: r has no effect in another term. The
// TTL engine does not use it: a LeaseRevoke proposed here fails with store.ErrNoGeneration.
func (n *Node) ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest) (store.Result, error) {
	return n.proposals.Submit(ctx, &store.Command{RequiredTerm: term, Request: r})
}

// queueRaft is the raft loop as its queue of proposals uses it. The loop calls all methods.
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
