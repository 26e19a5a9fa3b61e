package kvnode

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/transport"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/raftwal"
)

// Node is one member of a cluster. Its methods are safe for concurrent use.
type Node struct {
	cfg      Config             // immutable
	id       identity           // immutable but for Started, which the appender sets
	boot     uint64             // immutable: entries that bootstrapping made, 0 on a restart
	log      *slog.Logger       // immutable
	wal      *raftwal.Log       // immutable
	store    *store.Store       // immutable
	lease    *leaderlease.Lease // immutable
	appender *raftwal.Appender  // immutable
	links    *transport.Transport
	met      *acquaintances // immutable

	// Boxes and channels into the loop.
	wake      chan struct{}
	urgent    chan *raftpb.Message // from peers: heartbeats, votes and answers
	bulk      chan *raftpb.Message // from peers: entries and proposals
	local     box[*raftpb.Message] // from the appender and the applier
	calls     box[func()]          // to run in the loop
	proposals box[proposal]

	waiters waiters
	applies applyQueue
	// checkpointDue asks for a checkpoint.
	checkpointDue chan struct{}

	leader atomic.Pointer[leadership]
	term   atomic.Uint64
	// last is the last index of the log, stable or not.
	last atomic.Uint64
	disk diskWatch

	// loop is touched by the loop only.
	loop loopState

	stopping chan struct{} // closed first
	stopped  chan struct{} // closed last
	workers  sync.WaitGroup
	stopOnce sync.Once
	failure  atomic.Pointer[error]

	// begun is closed when peers may be admitted.
	begun        chan struct{}
	shutdownOnce sync.Once
	leaveOnce    sync.Once
	receiving    atomic.Bool // a snapshot
}

// loopState is what only the loop touches.
type loopState struct {
	raw    *raft.RawNode
	role   raft.StateType
	outbox []*raftpb.Message
	// parked are proposals that raft would not take yet: nobody leads, or the
	// leader is handing over.
	parked    []proposal
	spare     []proposal
	responses []*raftpb.Message
	run       []func()
	campaigns campaigns
	// confIndex is the newest configuration change that may be in the log: until
	// it is applied, raft takes no other.
	confIndex uint64
}

// leadership is who leads, for as long as that stays so.
type leadership struct {
	id      uint64
	changed chan struct{} // closed when it is over
}

// ID returns this member's ID.
func (n *Node) ID() uint64 { return n.id.MemberID }

// ClusterID returns the cluster's ID.
func (n *Node) ClusterID() uint64 { return n.id.ClusterID }

// Name returns this member's name.
func (n *Node) Name() string { return n.cfg.Name }

// Config returns the configuration the node runs with, defaults filled in.
func (n *Node) Config() Config { return n.cfg }

// Store returns the state machine. Read asks whether it may be read.
func (n *Node) Store() *store.Store { return n.store }

// Lease returns the leader lease.
func (n *Node) Lease() *leaderlease.Lease { return n.lease }

// Term returns the newest term this member knows.
func (n *Node) Term() uint64 { return n.term.Load() }

// Leader returns the leader's ID as far as this member knows, 0 if none.
func (n *Node) Leader() uint64 { return n.leader.Load().id }

// LeaderChanged returns a channel that is closed when the present leader, or
// the lack of one, is over.
func (n *Node) LeaderChanged() <-chan struct{} { return n.leader.Load().changed }

// Done is closed when the node has stopped, by Stop or because it failed.
func (n *Node) Done() <-chan struct{} { return n.stopped }

// Err returns why the node failed, nil if it did not.
func (n *Node) Err() error {
	if err := n.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// setLeader tells everybody who asked that leadership has moved.
func (n *Node) setLeader(id uint64) {
	old := n.leader.Swap(&leadership{id: id, changed: make(chan struct{})})
	close(old.changed)
}
