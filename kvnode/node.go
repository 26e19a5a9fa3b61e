package kvnode

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/leaderlease/go/kvnode/memberdir"
	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/store/watch"
	"github.com/leaderlease/go/kvnode/transport"
	"github.com/leaderlease/go/kvnode/ttl"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/raftwal"
)

// Node is one member of a cluster. Its methods are safe for concurrent use.
//
// What it does is done by its nouns, each a type in a file of its own with the state that is
// its alone: the loop, the applier, what waits, what is transferred. They stand on the same
// parts, and meet in Start.
type Node struct {
	// Immutable after the start.
	parts
	fresh bool        // the log had not begun at the start
	ttl   *ttl.Engine // set before anything is applied

	// The loop's.
	loop raftLoop

	// Shared: each has locks of its own.
	proposals
	applier     applier
	asker       asker
	checkpoints checkpoints
	snapshots   snapshots
	disk        disk
	applying
	routes routes
	// begun is closed when peers may be admitted.
	begun     chan struct{}
	farewells farewells
	formats   formats
	transfers
	membership
	reads
	publication
	received received
}

// parts are what a member is made of, and what its nouns stand on. They are immutable after
// the start, but for id, or have locks of their own.
type parts struct {
	life
	reign
	marks
	cfg        Config
	id         memberdir.Identity // what note changes is under noting
	noting     sync.Mutex
	lock       io.Closer // the data directory is this process's
	wal        *raftwal.Log
	store      *store.Store
	watch      *watch.Hub
	lease      *leaderlease.Lease
	links      *transport.Transport
	met        *acquaintances
	book       book
	quiet      quiet
	complaints complaints
	calls      calls            // into the loop
	atStart    transport.LogEnd // what was on the disk
}

// marks are how far this member's raft has come. The loop stores, anybody reads.
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

// Store returns the state machine. Read asks whether it may be read.
func (n *Node) Store() *store.Store { return n.store }

// Watch returns what tells of the changes in Store.
func (n *Node) Watch() *watch.Hub { return n.watch }

// Lease returns the leader lease.
func (n *Node) Lease() *leaderlease.Lease { return n.lease }
