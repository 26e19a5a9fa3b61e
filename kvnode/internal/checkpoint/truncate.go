package checkpoint

import (
	"errors"
	"maps"
	"math"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// truncate removes from the log what a checkpoint covers, apart from CatchUpEntries or CatchUpBytes,
// whichever is more, and what slow followers need. For a full disk it removes more (fullDiskIndex).
func (c *Checkpointer) truncate(at store.Checkpoint, full bool) error {
	if at.Index == 0 {
		return nil // there is no checkpoint yet
	}
	// SaveSnapshot comes before Compact, since a log must not begin after its snapshot. A crash in between only
	// leaves a longer log. ErrSnapOutOfDate means that a concurrent checkpoint has saved a newer snapshot.
	if err := c.cfg.Log.SaveSnapshot(at.Snapshot()); err != nil && !errors.Is(err, raft.ErrSnapOutOfDate) {
		return err
	}
	// Raft ignores a snapshot that is older than what it has applied, so its file is never restored.
	c.cfg.Received.RemoveUpTo(at.Index)
	to := at.Index - min(at.Index, c.cfg.CatchUpEntries)
	if c.cfg.CatchUpBytes > 0 {
		to = min(to, c.cfg.Log.Tail(c.cfg.CatchUpBytes))
	}
	to = c.keepForSlowFollowers(to)
	// The store may have applied more than raft knows to be applied. When raft campaigns, it reads the committed
	// entries after the index that it knows, and panics if they are gone.
	limit := min(at.Index, c.cfg.RaftApplied())
	if full {
		to = max(to, c.fullDiskIndex(limit))
	}
	if to = min(to, limit); to == 0 {
		return nil
	}
	if err := c.cfg.Log.Compact(to); err != nil && !errors.Is(err, raft.ErrCompacted) {
		return err
	}
	return nil
}

// fullDiskIndex returns the index up to which the log is removed when the disk is full: what every connected
// voter has, or more if that frees no segment. It returns 0 if no index up to limit frees one. A follower that lacks
// removed entries needs a snapshot, and its own disk may be too full for one.
func (c *Checkpointer) fullDiskIndex(limit uint64) uint64 {
	frees, ok := c.cfg.Log.FreesAt()
	if !ok || frees > limit {
		return 0
	}
	return min(limit, max(frees, c.connectedMatch()))
}

// connectedMatch returns the highest index that every connected voter has, or math.MaxUint64 if this member does not
// lead or stops. Voters that are not connected do not count, because they may stay away.
func (c *Checkpointer) connectedMatch() uint64 {
	connected := c.cfg.Connected()
	lowest := uint64(math.MaxUint64)
	ok := c.cfg.Loop.Do(func(r Raft) {
		if r.BasicStatus().RaftState != raft.StateLeader {
			return
		}
		r.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
			if typ == raft.ProgressTypePeer && connected[id] {
				lowest = min(lowest, pr.Match)
			}
		})
	})
	if !ok {
		return math.MaxUint64
	}
	return lowest
}

// defaultMaxKeptBytes is the default of Config.MaxKeptBytes. With a smaller value, one snapshot follows
// another while clients write a lot. A larger one takes more disk space.
const defaultMaxKeptBytes = 512 << 20

// slowFollowers are the followers that were sent a snapshot and have not caught up since.
//
// Such a follower needs the log from its snapshot on, until it has received and restored the snapshot and has
// caught up with the entries that were written meanwhile. If the log were truncated as usual, and clients wrote
// more than CatchUpEntries during each snapshot, the follower would get snapshots forever.
//
// A follower no longer counts once the log has grown by MaxKeptBytes since its snapshot, or by the size of the store
// if that is more: another snapshot is then cheaper.
type slowFollowers struct {
	count atomic.Int64 // the length of written, for other goroutines
	// written is, by ID, the number of bytes that the log had written when the newest snapshot was sent.
	// Used by the raft loop only.
	written map[uint64]uint64
}

// add notes that a snapshot is about to be sent. It runs on the raft loop.
func (s *slowFollowers) add(id, written uint64) {
	if s.written == nil {
		s.written = make(map[uint64]uint64)
	}
	s.written[id] = written
	s.count.Store(int64(len(s.written)))
}

// keepForSlowFollowers returns the index up to which the log may be truncated: index, or a lower one if slow
// followers still need entries below index.
func (c *Checkpointer) keepForSlowFollowers(index uint64) uint64 {
	if c.slow.count.Load() == 0 {
		return index
	}
	first, err := c.cfg.Log.FirstIndex()
	if err != nil {
		return index
	}
	size, _ := c.cfg.Store.Size()
	log := logState{upTo: index, first: first, maxKept: uint64(max(size, c.cfg.MaxKeptBytes))}
	connected, lowest := c.cfg.Connected(), index
	ok := c.cfg.Loop.Do(func(r Raft) {
		log.written = c.cfg.Log.Stats().Bytes // on the loop, like add, so that it is not below a recorded value
		lowest = c.slow.lowest(r, log, connected)
	})
	if !ok {
		return index
	}
	return lowest
}

// logState describes a log that is about to be truncated.
type logState struct {
	upTo, first      uint64 // entries up to upTo are to be removed; first is the first index now
	written, maxKept uint64 // bytes written since the log was opened, and the limit for a slow follower
}

// lowest returns the index that keepForSlowFollowers returns, and forgets followers that are not slow
// any more, or that get another snapshot in any case. It runs on the raft loop.
func (s *slowFollowers) lowest(r Raft, log logState, connected map[uint64]bool) uint64 {
	defer func() { s.count.Store(int64(len(s.written))) }()
	if r.BasicStatus().RaftState != raft.StateLeader {
		clear(s.written)
		return log.upTo
	}
	lowest := log.upTo
	members := make(map[uint64]bool)
	r.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		members[id] = true
		since, ok := s.written[id]
		has := pr.Match
		switch pr.State {
		case tracker.StateSnapshot:
			has = pr.PendingSnapshot
		case tracker.StateProbe:
			has = pr.Next - 1 // the snapshot was delivered, and is being restored
		case tracker.StateReplicate:
		}
		switch {
		case !ok || !connected[id]: // the log keeps nothing for a follower that is away, but may again when it is back
		case pr.State == tracker.StateReplicate && has >= log.upTo, has+1 < log.first, log.written-since > log.maxKept:
			delete(s.written, id)
		default:
			lowest = min(lowest, has)
		}
	})
	maps.DeleteFunc(s.written, func(id, _ uint64) bool { return !members[id] })
	return lowest
}
