package kvnode

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/raftwal"
)

// checkpointBytes is after how many bytes of entries a checkpoint is made, if Config.SnapshotCount
// is not reached before: one commit of the store (store.Config.CommitBytes). More: several commits
// follow one another, and whoever writes waits for all of them, 1.5 s of 64 MiB while much is
// loaded. Less: more of the same pages are written again and again.
const checkpointBytes = 4 << 20

// checkpoints make the applied state durable, one at a time, and the log shorter.
//
// The checkpointer takes them, and so do clients (Checkpoint), who sends a snapshot, and shutdown,
// each on its own goroutine. The store makes one after the other. Never the loop: it would wait
// for the disk, and for itself (followedUpTo).
type checkpoints struct {
	*parts
	disk     *disk
	received *received
	ask      lifecycle.Wakeup // for a checkpoint; what is asked while one is made is another one
	// bytes counts the applied entries, modulo checkpointBytes. It begins with this member's share
	// of that, so members that began together take turns, until one restarts. The applier only.
	bytes int
	begun bool

	took    *durations.Histogram
	failed  atomic.Uint64
	failure atomic.Pointer[error] // why the newest one was not made
}

// due is asked by the applier after each batch. One is due when this member's next turn has come,
// or when a restart would have to read and apply checkpointBytes.
func (c *checkpoints) due(bytes int) {
	if !c.begun && len(c.store.Members().ByID) > 0 {
		c.bytes, c.begun = int(c.turn(checkpointBytes)), true
	}
	c.bytes += bytes
	every, ahead := c.cfg.SnapshotCount, c.turn(c.cfg.SnapshotCount)
	turns := (c.store.Applied()+ahead)/every - (c.store.Durable().Index+ahead)/every
	if turns > 0 || c.bytes >= checkpointBytes {
		c.bytes %= checkpointBytes // from 0 on all members would be at one place
		c.ask.Wake()
	}
}

// turn is how far ahead of the multiples of every, in entries or bytes, this member makes its
// checkpoints. Each takes processor and disk from the log, so the members take turns: a majority
// is always free to commit. The place is by ID in the registry, which all compute alike; members
// that differ about it for a moment may take a turn together.
func (c *checkpoints) turn(every uint64) uint64 {
	members := c.store.Members().ByID
	rank := uint64(0)
	for id := range members {
		if id < c.ID() {
			rank++
		}
	}
	return every / uint64(max(len(members), 1)) * rank
}

// A checkpoint that finds no room is tried again after minCheckpointPause at the
// soonest, then after twice that, up to maxCheckpointPause. Shorter: each try
// writes what is left of the disk full, and says so in the log. Longer: the log
// grows on after there is room again.
const (
	minCheckpointPause = fullDiskPause
	maxCheckpointPause = 10 * time.Second
)

// run is the checkpointer.
func (c *checkpoints) run() {
	pause := minCheckpointPause
	for {
		select {
		case <-c.life.Stopping():
			return
		case <-c.ask:
		}
		err := c.take()
		if err == nil {
			pause = minCheckpointPause
			continue
		}
		if !c.survives(err) {
			c.life.Fail(fmt.Errorf("checkpoint: %w", err))
			return
		}
		// Who asks meanwhile is served after it.
		if !c.life.Sleep(pause) {
			return
		}
		pause = min(2*pause, maxCheckpointPause)
		c.ask.Wake() // nobody else may, if nothing is written
	}
}

// survives reports whether the node can go on without the checkpoint: a full
// disk costs nothing but room. Any other failure ends it, and says so: a member that went on
// would keep its whole log, until there is no room for it, and a restart would apply all of it.
func (c *checkpoints) survives(err error) bool {
	if noRoom(err) {
		c.log.Error("no room for a checkpoint", append(c.disk.roomFor(c.size()), "error", err)...)
		return true
	}
	return errors.Is(err, raftwal.ErrClosed) && c.life.IsStopping()
}

// noRoom knows both: what the log says of its segments, and what the system says of store.db.
func noRoom(err error) bool { return errors.Is(err, raftwal.ErrNoSpace) || isNoSpace(err) }

// take makes the applied state durable and then shortens the log. The
// order is what makes a crash harmless: the log knows an index to be committed
// before the store is durable at it, and keeps the entries until the store is
// (raftwal, Applied index). A crash in between is finished by reconcile.
func (c *checkpoints) take() error {
	begun := time.Now()
	err := c.save()
	if err != nil {
		c.failure.Store(&err)
		c.failed.Add(1)
		return err
	}
	c.failure.Store(nil)
	c.took.Note(time.Since(begun))
	return nil
}

func (c *checkpoints) save() error {
	at, err := c.store.Checkpoint(c.wal.SaveCommit)
	if err == nil {
		err = c.shorten(at, c.disk.full.Load())
		c.log.Debug("checkpoint", "index", at.Index, "revision", at.Revision)
		return err
	}
	if noRoom(err) {
		// What the one before covers makes room, for the log or for the next try.
		if failed := c.shorten(c.store.Durable(), true); failed != nil && !noRoom(failed) {
			return failed
		}
	}
	return err
}

// shorten removes from the log what a checkpoint covers. It leaves CatchUpEntries or
// CatchUpBytes, or less if the disk is full.
func (c *checkpoints) shorten(at store.Checkpoint, forRoom bool) error {
	if at.Index == 0 {
		return nil // there is none yet, so the log is all that there is
	}
	// Before Compact: a log begins where it has a snapshot. A crash in between leaves it longer than
	// it need be. Another checkpoint may have come first with a newer one.
	if err := c.wal.SaveSnapshot(at.Snapshot()); err != nil && !errors.Is(err, raft.ErrSnapOutOfDate) {
		return err
	}
	// Raft ignores snapshots that come late, so that nobody restores them.
	c.received.drop(at.Index)
	// A follower that needs an entry that is gone is sent a whole snapshot.
	to := at.Index - min(at.Index, c.cfg.CatchUpEntries)
	if c.cfg.CatchUpBytes > 0 {
		to = min(to, c.wal.Tail(c.cfg.CatchUpBytes))
	}
	to = c.needed(to)
	// Raft may not have heard yet that all of it is applied. A candidate reads what is committed
	// beyond what it has heard of, and panics if that is gone (marks.told).
	limit := min(at.Index, c.told.Load())
	if forRoom {
		to = max(to, c.forRoom(limit))
	}
	if to = min(to, limit); to == 0 {
		return nil
	}
	if err := c.wal.Compact(to); err != nil && !errors.Is(err, raft.ErrCompacted) {
		return err
	}
	return nil
}

// forRoom returns up to where the log, of which limit may go, is given up for room:
// what no connected voter lacks, and more only if that frees no segment, and then one.
// Whoever lacks what is gone needs a snapshot, for which its disk may be too full.
func (c *checkpoints) forRoom(limit uint64) uint64 {
	frees, ok := c.wal.FreesAt()
	if !ok || frees > limit {
		return 0
	}
	return min(limit, max(frees, c.followedUpTo()))
}

// followedUpTo returns how much of the log all connected voters have, and no bound
// if this member does not lead, or ends.
func (c *checkpoints) followedUpTo() uint64 {
	connected := c.connected()
	lowest, err := ask(context.Background(), &c.calls, func(l *raftLoop) uint64 {
		lowest := uint64(math.MaxUint64)
		if l.role == raft.StateLeader {
			l.raw.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
				if typ == raft.ProgressTypePeer && connected[id] {
					lowest = min(lowest, pr.Match)
				}
			})
		}
		return lowest
	})
	if err != nil {
		return math.MaxUint64 // the node ends, and nobody follows it any more
	}
	return lowest
}

// connected tells which members are. Of others nobody knows when they come back: they do not keep
// the log.
func (c *checkpoints) connected() map[uint64]bool {
	connected := make(map[uint64]bool)
	for _, p := range c.links.Peers() {
		connected[p.ID] = p.Connected
	}
	return connected
}

// size is what the next checkpoint makes store.db grow by, as far as can be
// told: what is not saved goes to unused pages first, and the file grows by a step.
func (c *checkpoints) size() int64 {
	const step = 1 << 20
	size, inUse := c.store.Size()
	return max(inUse+c.store.Unsaved()-size, 0) + step
}

// Checkpoint makes everything that is applied durable in the store, so that a
// snapshot holds it. It returns ErrStopped once the node stops, and ErrDiskFull if there
// is no room for it.
func (n *Node) Checkpoint(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.life.IsStopping() {
		return ErrStopped
	}
	// Here, and not by asking the checkpointer, so that the caller hears what became of it.
	err := n.checkpoints.take()
	if noRoom(err) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}
