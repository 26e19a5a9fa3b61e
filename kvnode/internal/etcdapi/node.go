package etcdapi

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/watch"
)

// Proposer replicates requests.
type Proposer interface {
	// Propose returns what applying r gave.
	Propose(ctx context.Context, r *pb.InternalRaftRequest) (store.Result, error)
}

// Reader permits reads of a store.
type Reader interface {
	// Read returns once Store may answer a read that mode asks for.
	Read(ctx context.Context, mode kvnode.ReadMode) (kvnode.Read, error)
	// WaitForReplay returns once Store may answer a stale read, or when ctx ends.
	WaitForReplay(ctx context.Context) error
	// TryRead reports whether Store may answer linearizable reads now that have arrived.
	TryRead() bool
	Store() *store.Store
}

// Member is one member's view of itself and its cluster.
type Member interface {
	ID() uint64
	ClusterID() uint64
	Term() uint64
	// Leader returns 0 if there is none. It takes no lock.
	Leader() uint64
	// LeaderChanged returns a channel that is closed when the leader is lost or
	// changes.
	LeaderChanged() <-chan struct{}
	MoveLeader(ctx context.Context, to uint64) error
	// Checkpoint makes what is applied durable, so that a snapshot holds it.
	Checkpoint(ctx context.Context) error
	// Alive returns why the member has ended, nil while it runs. It waits for nothing.
	Alive() error
	// Stalls returns how long the raft loop and the applier have made no progress. It waits for nothing.
	Stalls() (loop, applier time.Duration)
	Status() kvnode.Status
	// Config returns the configuration in effect.
	Config() kvnode.Config
}

// Changer changes the members of the cluster.
type Changer interface {
	AddMember(ctx context.Context, peerURLs []string, learner bool) (store.Member, error)
	RemoveMember(ctx context.Context, id uint64) error
	UpdateMember(ctx context.Context, id uint64, peerURLs []string) error
	// PromoteMember works on the leader only.
	PromoteMember(ctx context.Context, id uint64) error
}

// Watcher tells what changes in a store.
type Watcher interface {
	Watch() *watch.Hub
}

// Node is what the API needs of a *kvnode.Node.
type Node interface {
	Changer
	Proposer
	Reader
	Member
	TTLKeeper
	Watcher
}

var _ Node = (*kvnode.Node)(nil)
