package kvnode

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/raftwal"
)

// maxReplayBytes is after how many bytes of entries a checkpoint is made, if
// Config.SnapshotCount is not reached before: it bounds a restart's replay.
const maxReplayBytes = 64 << 20

// checkpointIfDue is asked by the applier after each batch.
func (n *Node) checkpointIfDue(bytes int) {
	n.applies.bytes += bytes
	every, ahead := n.cfg.SnapshotCount, n.checkpointTurn()
	turns := (n.store.Applied()+ahead)/every - (n.store.Durable().Index+ahead)/every
	if turns > 0 || n.applies.bytes >= maxReplayBytes {
		n.applies.bytes = 0
		n.askCheckpoint()
	}
}

// checkpointTurn is how many entries ahead of the multiples of SnapshotCount this
// member makes its checkpoints. Each takes processor and disk from the log, so the
// members take turns: a majority is always free to commit.
func (n *Node) checkpointTurn() uint64 {
	members := n.store.Members().ByID
	rank := uint64(0)
	for id := range members {
		if id < n.ID() {
			rank++
		}
	}
	return n.cfg.SnapshotCount / uint64(max(len(members), 1)) * rank
}

func (n *Node) askCheckpoint() {
	select {
	case n.checkpointDue <- struct{}{}:
	default:
	}
}

// A checkpoint that finds no room is tried again after minCheckpointPause at the
// soonest, then after twice that, up to maxCheckpointPause. Shorter: each try
// writes what is left of the disk full, and says so in the log. Longer: the log
// grows on after there is room again.
const (
	minCheckpointPause = fullDiskPause
	maxCheckpointPause = 10 * time.Second
)

// checkpointLoop is the checkpointer.
func (n *Node) checkpointLoop() {
	pause := minCheckpointPause
	for {
		select {
		case <-n.stopping:
			return
		case <-n.checkpointDue:
		}
		err := n.checkpoint()
		if err == nil {
			pause = minCheckpointPause
			continue
		}
		if !n.survives(err) {
			n.fail(fmt.Errorf("checkpoint: %w", err))
			return
		}
		// Who asks meanwhile is served after it.
		select {
		case <-n.stopping:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxCheckpointPause)
		n.askCheckpoint() // nobody else may, if nothing is written
	}
}

// Checkpoint makes everything that is applied durable in the store, so that a
// snapshot holds it. It returns ErrStopped once the node stops, and ErrDiskFull if there
// is no room for it.
func (n *Node) Checkpoint(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.isStopping() {
		return ErrStopped
	}
	err := n.checkpoint()
	if noRoom(err) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}

// survives reports whether the node can go on without the checkpoint: a full
// disk costs nothing but room.
func (n *Node) survives(err error) bool {
	if noRoom(err) {
		n.log.Error("no room for a checkpoint", append(n.roomFor(n.checkpointSize()), "error", err)...)
		return true
	}
	return errors.Is(err, raftwal.ErrClosed) && n.isStopping()
}

func noRoom(err error) bool { return errors.Is(err, raftwal.ErrNoSpace) || isNoSpace(err) }

// checkpoint makes the applied state durable and then shortens the log. The
// order is what makes a crash harmless: the log knows an index to be committed
// before the store is durable at it, and keeps the entries until the store is
// (raftwal, Applied index). A crash in between is finished by reconcile.
func (n *Node) checkpoint() error {
	begun := time.Now()
	err := n.saveCheckpoint()
	n.counts.checkpoint(time.Since(begun), err)
	return err
}

func (n *Node) saveCheckpoint() error {
	members := n.store.Members()
	at, err := n.store.Checkpoint(n.wal.SaveCommit)
	if err == nil {
		n.saved.Store(members)
		err = n.shorten(at, n.disk.full.Load())
		n.log.Debug("checkpoint", "index", at.Index, "revision", at.Revision)
		return err
	}
	if noRoom(err) {
		// What the one before covers makes room, for the log or for the next try.
		if failed := n.shorten(n.store.Durable(), true); failed != nil && !noRoom(failed) {
			return failed
		}
	}
	return err
}

// shorten has the log forget what a checkpoint covers, but for CatchUpEntries, or less
// if it is for room.
func (n *Node) shorten(at store.Checkpoint, forRoom bool) error {
	if at.Index == 0 {
		return nil
	}
	if err := n.wal.SaveSnapshot(snapshotOf(at)); err != nil && !errors.Is(err, raft.ErrSnapOutOfDate) {
		return err
	}
	// Raft ignores snapshots that come late, so that nobody restores them.
	n.received.drop(at.Index)
	to := at.Index - min(at.Index, n.cfg.CatchUpEntries)
	// Raft may not have heard yet that all of it is applied.
	limit := min(at.Index, n.told.Load())
	if forRoom {
		to = max(to, n.forRoom(limit))
	}
	if to = min(to, limit); to == 0 {
		return nil
	}
	if err := n.wal.Compact(to); err != nil && !errors.Is(err, raft.ErrCompacted) {
		return err
	}
	return nil
}

// forRoom returns up to where the log, of which limit may go, is given up for room:
// what no connected voter lacks, and more only if that frees no segment, and then one.
// Whoever lacks what is gone needs a snapshot, for which its disk may be too full.
func (n *Node) forRoom(limit uint64) uint64 {
	frees, ok := n.wal.FreesAt()
	if !ok || frees > limit {
		return 0
	}
	return min(limit, max(frees, n.followedUpTo()))
}

// followedUpTo returns how much of the log all connected voters have, and no bound
// if this member does not lead, or ends.
func (n *Node) followedUpTo() uint64 {
	connected := make(map[uint64]bool)
	for _, p := range n.links.Peers() {
		connected[p.ID] = p.Connected
	}
	found := make(chan uint64, 1)
	n.calls.put(func(l *raftLoop) {
		lowest := uint64(math.MaxUint64)
		if l.role == raft.StateLeader {
			l.raw.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
				if typ == raft.ProgressTypePeer && connected[id] {
					lowest = min(lowest, pr.Match)
				}
			})
		}
		found <- lowest
	})
	select {
	case lowest := <-found:
		return lowest
	case <-n.stopping:
		return math.MaxUint64
	}
}

// snapshotOf returns what the log keeps of a checkpoint: all but the state.
func snapshotOf(c store.Checkpoint) *raftpb.Snapshot {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(c.Index), Term: new(c.Term), ConfState: c.ConfState,
	}}
}
