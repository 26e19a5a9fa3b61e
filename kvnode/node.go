// Package kvnode is one member of a replicated key-value store: raft with a leader lease (package
// leaderlease), its log on disk (raftwal), an MVCC state machine (internal/store) and connections to its
// peers (internal/transport). Package server serves the etcd v3 API on top of it (internal/etcdapi).
//
//	n, err := kvnode.Start(kvnode.Config{Name: "n1", DataDir: dir, Cluster: members, Listener: l})
//	res, err := n.Propose(ctx, &pb.InternalRaftRequest{Put: put}) // returns when it is replicated and applied
//	r, err := n.Read(ctx, kvnode.ReadAuto)                        // then read n.Store()
//
// Four goroutines do the work of a member. They hand it to each other through unbounded mailboxes, and
// only the applier ever waits for the loop, at a configuration change:
//   - The raft loop (loop.go, ready.go) is the only one that uses raft. Others queue functions for it.
//   - The appender (raftwal.Appender) makes the log durable, and then sends raft's responses.
//   - The applier (apply.go) applies committed entries to the store.
//   - The checkpointer (internal/checkpoint) makes the store durable and truncates the log.
//
// docs/architecture.md follows a read, a write and a renewal of the lease through them.
package kvnode

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/leaderlease/go/kvnode/internal/checkpoint"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/watch"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/kvnode/internal/ttl"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/leasetrace"
	"github.com/leaderlease/go/raftwal"
)

// Node is one member of a cluster. Its methods are safe for concurrent use.
//
// What it does its nouns do, each a type in a file of its own that has its state to itself.
// They stand on the same parts, and on the other nouns that they name; Start puts them
// together.
type Node struct {
	// Immutable after the start, all of parts but id; what changes in there has its own lock
	// or is atomic.
	parts
	fresh  bool                 // the log had not begun at the start
	ttl    *ttl.Engine          // set before anything is applied
	trace  *leasetrace.Trace    // nil for none
	tracer *leasetrace.Recorder // nil for none
	begun  chan struct{}        // closed when peers may be admitted

	// Owned by the loop, but for what raftLoop says is shared.
	loop *raftLoop

	// Shared. Clients, on goroutines of their own, call proposals, reads, membership and
	// transfers; each of the others has one goroutine. What is told from one to another is
	// under a mutex there, atomic, or a channel.
	proposals   *proposals.Pending
	reads       *reads
	replay      *replay
	transfers   *transfers
	publication *publication
	applier     *applier
	applyTimes  *applyTimes
	invalid     *invalidEntries
	formats     *formatUpgrade
	membership
	checkpoints *checkpoint.Checkpointer
	disk        *checkpoint.Disk
	received    *checkpoint.Received
	snapshots   *checkpoint.Sender
	routes      routes
	farewells   farewells
}

// parts are what a member is made of, and what its nouns stand on. Nobody but Start sets a
// field.
type parts struct {
	// Immutable after the start.
	cfg     Config
	atStart transport.LogEnd // what was on the disk
	lock    io.Closer        // the data directory is this process's

	// Shared, and safe for concurrent use each by itself.
	wal       *raftwal.Log
	store     *store.Store
	watch     *watch.Hub
	lease     *leaderlease.Lease
	links     *transport.Transport
	book      book
	log       *slog.Logger
	life      *lifecycle.Lifecycle
	calls     calls // into the loop
	logLimits logLimits
	noting    sync.Mutex
	id        memberdir.Identity // noting guards Started, Admitted and Lost; the rest is immutable

	// The loop stores, anybody reads.
	leadership *leadership
	marks
}

// marks are how far this member's raft has come.
type marks struct {
	// last is the last index of the log, stable or not.
	last atomic.Uint64
	// told is what raft has been told is applied, and so at most what is. Before a
	// campaign it scans what is committed beyond.
	told atomic.Uint64
}

// ID returns this member's ID.
func (p *parts) ID() uint64 { return p.id.MemberID }

// ClusterID returns the cluster's ID.
func (p *parts) ClusterID() uint64 { return p.id.ClusterID }

// Name returns this member's name.
func (n *Node) Name() string { return n.cfg.Name }

// Fresh reports whether the member had nothing in its log when it started.
func (n *Node) Fresh() bool { return n.fresh }

// Config returns the configuration the node runs with, defaults filled in.
func (n *Node) Config() Config { return n.cfg }

// Trace returns what the lease has decided lately, nil unless Config.KeepTrace says so, and
// the clock that it goes by.
func (n *Node) Trace() (*leasetrace.Trace, clock.Clock) {
	if n.cfg.Clock == nil {
		return n.trace, clock.System()
	}
	return n.trace, n.cfg.Clock
}

// Store returns the state machine. Read asks whether it may be read.
func (n *Node) Store() *store.Store { return n.store }

// Watch returns what tells of the changes in Store.
func (n *Node) Watch() *watch.Hub { return n.watch }

// Lease returns the leader lease.
func (n *Node) Lease() *leaderlease.Lease { return n.lease }

// Term returns the newest term this member knows.
func (n *Node) Term() uint64 { return n.leadership.Term() }

// Leader returns the leader's ID as far as this member knows, 0 if none.
func (n *Node) Leader() uint64 { return n.leadership.Leader() }

// LeadingTerm returns the term in which this member leads, 0 if it does not. A command proposed with
// ProposeFenced and this term takes effect only if this member still leads in it then.
func (n *Node) LeadingTerm() uint64 { return n.leadership.LeadingTerm() }

// LeaderChanged returns a channel that is closed when the leader changes, or is lost.
func (n *Node) LeaderChanged() <-chan struct{} { return n.leadership.current.Load().changed }

// Checkpoint makes the applied state durable in the store, so that a snapshot of the store contains it.
// It returns ErrStopped if the node stops, and ErrDiskFull if the disk is full.
func (n *Node) Checkpoint(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.life.IsStopping() {
		return ErrStopped
	}
	err := n.checkpoints.Make()
	if checkpoint.IsNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}

// connected returns, by ID, whether this member is connected to a peer.
func (n *Node) connected() map[uint64]bool {
	connected := make(map[uint64]bool)
	for _, p := range n.links.Peers() {
		connected[p.ID] = p.Connected
	}
	return connected
}
