package kvnode

import (
	"context"
	"maps"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// maxKeptBytes is how much more the log may write while it is kept for a follower that was sent a
// snapshot, or the size of the store if that is more: then another snapshot costs less than the
// log. Less: where much is written, snapshots follow one another. More: more disk.
const maxKeptBytes = 512 << 20

// laggards are the followers that were sent a snapshot and have not caught up since, by ID: with
// how much the log had written in all when the newest one was sent.
//
// Such a follower needs the log from that snapshot on while it travels and is restored, and then
// until it has what was written meanwhile. A log that goes on forgetting sends it another
// snapshot, and so on for ever, where more entries than CatchUpEntries are written while one
// travels. Etcd forgets nothing meanwhile, and for 30 s after.
type laggards map[uint64]uint64

// needed returns to, up to where the log is to go, or less if laggards need what is behind that.
func (c *checkpoints) needed(to uint64) uint64 {
	if c.lag.Load() == 0 {
		return to
	}
	first, err := c.wal.FirstIndex()
	if err != nil {
		return to
	}
	connected := c.connected()
	size, _ := c.store.Size()
	most := uint64(max(size, c.cfg.maxKept))
	lowest, err := ask(context.Background(), &c.calls, func(l *raftLoop) uint64 { return l.needed(to, first, most, connected) })
	if err != nil {
		return to // the node ends, and nobody follows it any more
	}
	return lowest
}

// sendSnapshot sends one to a follower, which raft sends nothing else before report.
func (l *raftLoop) sendSnapshot(m *raftpb.Message) {
	l.laggards[m.GetTo()] = l.wal.Stats().Bytes
	l.lag.Store(int64(len(l.laggards)))
	l.snapshots.send(m)
}

// needed is checkpoints.needed for a log that begins with first.
func (l *raftLoop) needed(to, first, most uint64, connected map[uint64]bool) uint64 {
	defer func() { l.lag.Store(int64(len(l.laggards))) }()
	if l.role != raft.StateLeader {
		clear(l.laggards)
		return to
	}
	lowest, written := to, l.wal.Stats().Bytes
	members := make(map[uint64]bool)
	l.raw.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		members[id] = true
		since, ok := l.laggards[id]
		has := pr.Match
		switch pr.State {
		case tracker.StateSnapshot:
			has = pr.PendingSnapshot
		case tracker.StateProbe:
			has = pr.Next - 1 // it was delivered, and is being restored
		case tracker.StateReplicate:
		}
		switch {
		case !ok || !connected[id]:
		case pr.State == tracker.StateReplicate && has >= to, has+1 < first, written-since > most:
			delete(l.laggards, id) // it follows, or it gets another snapshot in any case
		default:
			lowest = min(lowest, has)
		}
	})
	maps.DeleteFunc(l.laggards, func(id, _ uint64) bool { return !members[id] })
	return lowest
}
