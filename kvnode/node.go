// Package kvnode is one member of a replicated key-value store: raft with a leader lease (package
// leaderlease), its log on disk (raftwal), an MVCC state machine (internal/store) and connections to its
// peers (internal/transport). Package server serves the etcd v3 API on top of it.
//
//	n, err := kvnode.Start(kvnode.Config{Name: "n1", DataDir: dir, Cluster: members, Listener: l})
//	res, err := n.Propose(ctx, &pb.InternalRaftRequest{Put: put}) // returns when it is replicated and applied
//	r, err := n.Read(ctx, kvnode.ReadAuto)                        // then read n.Store()
//
// A request for which Propose has returned no error is on the disks of a majority. Otherwise the error says
// whether it may still take effect. A read that fails has done nothing. Reads are linearizable, but for
// ReadSerializable; in ReadLease they rely on the assumptions of package leaderlease. If the member cannot
// continue, Done is closed, and Err returns the reason. The process should then exit.
//
// Four goroutines do the work of a member. The raft loop never waits for another one:
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
	"github.com/leaderlease/go/kvnode/internal/membership"
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
// Node is composed of the types below, and Start wires them. Its methods are declared beside the types that
// they call.
type Node struct {
	// Immutable after the start.
	cfg      Config
	fresh    bool                 // the log was empty at the start
	atStart  transport.DiskState  // the end of the log at the start
	lock     io.Closer            // of the data directory
	trace    *leasetrace.Trace    // of the newest events; nil if neither Config.KeepTrace nor LeaseTrace is set
	recorder *leasetrace.Recorder // nil without Config.LeaseTrace
	begun    chan struct{}        // closed when the components run; until then peers wait to be admitted

	idMu sync.Mutex
	id   memberdir.Identity // idMu guards Admitted and Lost; the log writer owns Started; the rest is immutable

	// Set by the loop, and read by any goroutine.
	leadership  *leadership
	last        atomic.Uint64 // the last index of the log, durable or not
	raftApplied atomic.Uint64 // the highest index that raft knows to be applied; the store may have applied more

	// Used by the components.
	wal       *raftwal.Log
	store     *store.Store
	watch     *watch.Hub
	lease     *leaderlease.Lease
	links     *transport.Transport
	members   *membership.List
	log       *slog.Logger
	life      *lifecycle.Lifecycle
	calls     calls // into the loop
	logLimits logLimits

	// The components. Each guards its own state.
	loop        *raftLoop
	proposals   *proposals.Pending
	reads       *reads
	replay      *replay
	transfers   *transfers
	publication *publication
	applier     *applier
	versions    *versionUpgrade
	checkpoints *checkpoint.Checkpointer
	disk        *checkpoint.Disk
	received    *checkpoint.Received
	snapshots   *checkpoint.Sender
	ttl         *ttl.Engine
	membership  struct {
		changer  *membership.Changer
		removals *membership.RemovalAcks
		routes   *membership.Routes
		rollback *membership.RollbackDetector
		dataLoss *membership.DataLoss
		gate     *membership.Gate
	}
}

// ID returns this member's ID.
func (n *Node) ID() uint64 { return n.id.MemberID }

// ClusterID returns the cluster's ID.
func (n *Node) ClusterID() uint64 { return n.id.ClusterID }

// Name returns this member's name.
func (n *Node) Name() string { return n.cfg.Name }

// Fresh reports whether the member's log was empty at the start.
func (n *Node) Fresh() bool { return n.fresh }

// Config returns the configuration of the node, with defaults.
func (n *Node) Config() Config { return n.cfg }

// Trace returns the lease's newest events, and its clock. The events are nil if neither Config.KeepTrace nor
// LeaseTrace is set.
func (n *Node) Trace() (*leasetrace.Trace, clock.Clock) { return n.trace, n.cfg.Clock }

// Store returns the state machine. A linearizable read calls Read first.
func (n *Node) Store() *store.Store { return n.store }

// Watch returns the hub that publishes the changes of Store.
func (n *Node) Watch() *watch.Hub { return n.watch }

// Lease returns the leader lease.
func (n *Node) Lease() *leaderlease.Lease { return n.lease }

// Term returns the newest term this member knows.
func (n *Node) Term() uint64 { return n.leadership.Term() }

// Leader returns the leader's ID as far as this member knows, 0 if none.
func (n *Node) Leader() uint64 { return n.leadership.Leader() }

// LeadingTerm returns the term in which this member leads, 0 if it does not. A command that is proposed
// with ProposeFenced and this term takes effect only if its entry in the log has that term.
func (n *Node) LeadingTerm() uint64 { return n.leadership.LeadingTerm() }

// LeaderChanged returns a channel that is closed when this member learns of another leader, or of a later term of the
// same one, or loses its leader.
func (n *Node) LeaderChanged() <-chan struct{} { return n.leadership.current.Load().changed }

// Checkpoint makes the applied state durable in the store, so that a snapshot of the store contains it. It returns
// ErrStopped once the node stops, and ErrDiskFull if the disk is full. It does not watch ctx while it runs.
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
