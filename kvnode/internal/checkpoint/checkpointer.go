// Package checkpoint makes the applied state of a member durable, truncates its log, and exchanges
// snapshots with the other members.
//
// Package kvnode wires it: the applier reports each batch to the Checkpointer, the raft loop passes
// snapshots to send to the Sender, the transport passes arriving ones to Received, and the appender
// reports the writes of the log to Disk. The package uses raft only through Loop.
//
// Two invariants make a crash at any point harmless (see Checkpointer.Reconcile):
//   - Before the store becomes durable at an index, the log has saved that the index is committed. A
//     truncation keeps the entries after the store's durable index.
//   - A received snapshot is durable in a file before raft gets the message, and the file stays until the
//     store is durable at its index.
package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/raftwal"
)

// MaxBytes is the number of bytes of applied entries after which a checkpoint is made, if Config.SnapshotCount is
// not reached before. It is about one commit of the store. A larger checkpoint takes several commits in a row, and
// slows the log down for longer. A smaller one rewrites the same pages more often.
const MaxBytes = 4 << 20

// A checkpoint that finds no free space is tried again after minPause, then after twice as long each time, up to
// MaxPause.
const (
	minPause = fullDiskPause
	MaxPause = 10 * time.Second
)

// Loop runs functions on the raft loop, the only goroutine that may use raft.
type Loop interface {
	// Do runs f and waits for it. It returns false if the member stops first; f may run later then.
	// The raft loop itself must not call it.
	Do(f func(Raft)) bool
	// Push runs f later.
	Push(f func(Raft))
}

// Raft is what this package uses of a raft.RawNode.
type Raft interface {
	BasicStatus() raft.BasicStatus
	WithProgress(visit func(id uint64, typ raft.ProgressType, pr tracker.Progress))
	ReportSnapshot(id uint64, status raft.SnapshotStatus)
}

// Config is what a Checkpointer uses. CatchUpBytes and MaxKeptBytes may be 0, and the rest must be set.
type Config struct {
	Self  uint64 // the member's ID
	Log   *raftwal.Log
	Store *store.Store
	// Disk says whether the disk is full, and wakes the Checkpointer.
	Disk      *Disk
	Received  *Received
	Loop      Loop
	Lifecycle *lifecycle.Lifecycle
	Logger    *slog.Logger

	// SnapshotCount, CatchUpEntries and CatchUpBytes are those of kvnode.Config.
	SnapshotCount, CatchUpEntries uint64
	CatchUpBytes                  int64
	// MaxKeptBytes limits what the log keeps for slow followers (slowFollowers). 0: defaultMaxKeptBytes.
	MaxKeptBytes int64
	// RaftApplied returns the highest index that raft knows to be applied.
	RaftApplied func() uint64
	// Connected reports, by ID, whether this member is connected to a peer.
	Connected func() map[uint64]bool
}

// Checkpointer makes the applied state durable, one checkpoint at a time, and truncates the log.
//
// Run makes the checkpoints that are due. Clients, the Sender and the shutdown make further ones with
// Make, each on its own goroutine; the store serializes them. The raft loop must not call Make, which
// waits for the disk and for the loop itself.
type Checkpointer struct {
	cfg  Config
	slow slowFollowers

	// bytes counts the bytes of applied entries, modulo MaxBytes. It starts with this member's offset, so that the
	// members take turns. Only the applier uses bytes and started.
	bytes   int
	started bool // bytes has started

	took    *durations.Histogram
	failed  atomic.Uint64
	failure atomic.Pointer[error] // of the newest attempt, nil after a success
}

// New returns a Checkpointer. Run starts it.
func New(cfg Config) *Checkpointer {
	cfg.MaxKeptBytes = cmp.Or(cfg.MaxKeptBytes, defaultMaxKeptBytes)
	return &Checkpointer{cfg: cfg, took: durations.New(raftwal.SyncBounds)}
}

// Applied notes that the applier has applied a batch with that many bytes of entries. A checkpoint is due when this
// member's turn comes, either after SnapshotCount entries or after MaxBytes.
func (c *Checkpointer) Applied(bytes int) {
	if !c.started && len(c.cfg.Store.Members().ByID) > 0 {
		c.bytes, c.started = int(c.offset(MaxBytes)), true
	}
	c.bytes += bytes
	offset := c.offset(c.cfg.SnapshotCount)
	turns := (c.cfg.Store.Applied()+offset)/c.cfg.SnapshotCount - (c.cfg.Store.Durable().Index+offset)/c.cfg.SnapshotCount
	if turns > 0 || c.bytes >= MaxBytes {
		c.bytes %= MaxBytes // if it were set to 0, the members would no longer take turns
		c.cfg.Disk.wakeup.Wake()
	}
}

// offset returns how far ahead of the multiples of interval, in entries or bytes, this member makes its
// checkpoints. A checkpoint slows the log down, so the members take turns in the order of their IDs.
func (c *Checkpointer) offset(interval uint64) uint64 {
	members := c.cfg.Store.Members().ByID
	rank := uint64(0)
	for id := range members {
		if id < c.cfg.Self {
			rank++
		}
	}
	return interval / uint64(max(len(members), 1)) * rank
}

// Run makes the checkpoints that are due until the member stops.
func (c *Checkpointer) Run() {
	pause := minPause
	for {
		select {
		case <-c.cfg.Lifecycle.Stopping():
			return
		case <-c.cfg.Disk.wakeup:
		}
		err := c.Make()
		if err == nil {
			pause = minPause
			continue
		}
		if !c.survives(err) {
			c.cfg.Lifecycle.Fail(fmt.Errorf("checkpoint: %w", err))
			return
		}
		if !c.cfg.Lifecycle.Sleep(pause) {
			return
		}
		pause = min(2*pause, MaxPause)
		c.cfg.Disk.wakeup.Wake() // try again: on an idle member no other event would wake this goroutine
	}
}

// survives reports whether Run continues after a failed checkpoint: the disk is full, or the member stops and
// has closed the log. After a failure of another kind the log would grow until the disk is full.
func (c *Checkpointer) survives(err error) bool {
	if IsNoSpace(err) {
		c.cfg.Logger.Error("no room for a checkpoint", append(c.cfg.Disk.spaceFor(c.growth()), "error", err)...)
		return true
	}
	return errors.Is(err, raftwal.ErrClosed) && c.cfg.Lifecycle.IsStopping()
}

// growth estimates by how many bytes the next checkpoint makes the store's file grow. Unsaved data fills unused pages
// first, and the file grows by step at least.
func (c *Checkpointer) growth() int64 {
	const step = 1 << 20
	size, inUse := c.cfg.Store.Size()
	return max(inUse+c.cfg.Store.UnsavedBytes()-size, 0) + step
}

// Make makes the applied state durable, and then truncates the log. IsNoSpace tells whether its error
// means that the disk is full.
func (c *Checkpointer) Make() error {
	start := time.Now()
	if err := c.save(); err != nil {
		c.failure.Store(&err)
		c.failed.Add(1)
		return err
	}
	c.failure.Store(nil)
	c.took.Note(time.Since(start))
	return nil
}

func (c *Checkpointer) save() error {
	// SaveCommit runs before the store becomes durable at the index (see the package comment).
	at, err := c.cfg.Store.SaveCheckpoint(c.cfg.Log.SaveCommit)
	if err == nil {
		err = c.truncate(at, c.cfg.Disk.IsFull())
		c.cfg.Logger.Debug("checkpoint", "index", at.Index, "revision", at.Revision)
		return err
	}
	if IsNoSpace(err) {
		// Truncating up to the previous checkpoint frees space, for the log or for the next try.
		if failed := c.truncate(c.cfg.Store.Durable(), true); failed != nil && !IsNoSpace(failed) {
			return failed
		}
	}
	return err
}

// Stats is what a Checkpointer has done since the start.
type Stats struct {
	Took   durations.Counts // of the checkpoints that succeeded
	Failed uint64           // the number of checkpoints that failed
	Err    error            // of the newest attempt; nil if it succeeded
}

// Stats returns the present figures.
func (c *Checkpointer) Stats() Stats {
	s := Stats{Took: c.took.Load(), Failed: c.failed.Load()}
	if err := c.failure.Load(); err != nil {
		s.Err = *err
	}
	return s
}
