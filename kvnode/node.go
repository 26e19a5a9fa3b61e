package kvnode

import (
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/time/rate"

	"github.com/leaderlease/go/kvnode/admission"
	"github.com/leaderlease/go/kvnode/memberdir"
	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/store/watch"
	"github.com/leaderlease/go/kvnode/transport"
	"github.com/leaderlease/go/kvnode/ttl"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/raftwal"
)

// Node is one member of a cluster. Its methods are safe for concurrent use.
type Node struct {
	cfg      Config             // immutable
	id       memberdir.Identity // immutable but for what note changes
	boot     uint64             // immutable: entries that bootstrapping made, 0 on a restart
	fresh    bool               // immutable: the log had not begun at the start
	log      *slog.Logger       // immutable
	lock     io.Closer          // immutable: the data directory is this process's
	wal      *raftwal.Log       // immutable
	store    *store.Store       // immutable
	watch    *watch.Hub         // immutable
	lease    *leaderlease.Lease // immutable
	appender *raftwal.Appender  // immutable
	links    *transport.Transport
	met      *acquaintances // immutable
	book     book           // immutable but for its vouchers
	routes   routes
	vouched  vouched
	quiet    quiet

	// Boxes and channels into the loop.
	wake      chan struct{}
	urgent    chan *raftpb.Message // from peers: heartbeats, votes and answers
	bulk      chan *raftpb.Message // from peers: entries and proposals
	local     box[*raftpb.Message] // from the appender and the applier
	calls     box[func()]          // to run in the loop
	proposals box[proposal]

	waiters waiters
	intake  intake
	applies applyQueue
	replay  replay
	atStart transport.LogEnd // immutable: what was on the disk
	// checkpointDue asks for a checkpoint.
	checkpointDue chan struct{}

	leader atomic.Pointer[leadership]
	// awaited are those who have not let this member in yet.
	awaited atomic.Pointer[[]string]
	saved   atomic.Pointer[store.Members] // the last checkpoint has them, nil before
	term    atomic.Uint64
	// last is the last index of the log, stable or not.
	last atomic.Uint64
	// told is what raft has been told is applied, and so at most what is. Before a
	// campaign it scans what is committed beyond. The loop stores.
	told atomic.Uint64
	disk diskWatch
	// counts are figures for Status, complain limits what is logged of malformed.
	counts   counts
	complain rate.Sometimes
	// applying is how long entries take to be applied.
	applying applying
	// late is how late the loop is at its ticks.
	late lateness
	// ttl is set before anything is applied.
	ttl *ttl.Engine

	// loop is touched by the loop only.
	loop loopState

	stopping chan struct{} // closed first
	stopped  chan struct{} // closed last
	workers  sync.WaitGroup
	stopOnce sync.Once
	failure  atomic.Pointer[error]

	// begun is closed when peers may be admitted.
	begun        chan struct{}
	known        chan struct{} // closed when the member has published itself
	shutdownOnce sync.Once
	farewells    farewells
	received     received
	advice       sync.Once  // of adviseAlone
	noting       sync.Mutex // guards changes of id
}

// loopState is what only the loop touches.
type loopState struct {
	raw       *raft.RawNode
	role      raft.StateType
	outbox    []*raftpb.Message
	offers    offers
	spare     []proposal
	commit    uint64    // of the newest Ready
	offered   time.Time // when raft was offered proposals last
	responses []*raftpb.Message
	run       []func()
	admission *admission.State
	// restored is the index of the newest snapshot that raft has switched to: older
	// changes of the configuration are in it.
	restored uint64
}

// leadership is who leads, for as long as that stays so.
type leadership struct {
	id      uint64
	term    uint64        // in which id leads, if it is this member
	changed chan struct{} // closed when it is over
}

// ID returns this member's ID.
func (n *Node) ID() uint64 { return n.id.MemberID }

// ClusterID returns the cluster's ID.
func (n *Node) ClusterID() uint64 { return n.id.ClusterID }

// Name returns this member's name.
func (n *Node) Name() string { return n.cfg.Name }

// Fresh reports whether the member had nothing in its log when it started.
func (n *Node) Fresh() bool { return n.fresh }

// Config returns the configuration the node runs with, defaults filled in.
func (n *Node) Config() Config { return n.cfg }

// Store returns the state machine. Read asks whether it may be read.
func (n *Node) Store() *store.Store { return n.store }

// Watch returns what tells of the changes in Store.
func (n *Node) Watch() *watch.Hub { return n.watch }

// Lease returns the leader lease.
func (n *Node) Lease() *leaderlease.Lease { return n.lease }

// Term returns the newest term this member knows.
func (n *Node) Term() uint64 { return n.term.Load() }

// Leader returns the leader's ID as far as this member knows, 0 if none.
func (n *Node) Leader() uint64 { return n.leader.Load().id }

// LeadingTerm returns the term in which this member leads, 0 if it does not: what
// is proposed with ProposeFenced and this term takes effect only if it still does
// then.
func (n *Node) LeadingTerm() uint64 {
	if now := n.leader.Load(); now.id == n.ID() {
		return now.term
	}
	return 0
}

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
	old := n.leader.Swap(&leadership{id: id, term: n.Term(), changed: make(chan struct{})})
	close(old.changed)
}
