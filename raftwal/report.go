package raftwal

import (
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/durations"
)

// Report says what a log holds, and what was found when it was opened.
type Report struct {
	// Segments are the files in order.
	Segments []SegmentInfo
	// FirstIndex and LastIndex are the bounds of the entries; FirstIndex is
	// LastIndex+1 if there are none.
	FirstIndex, LastIndex uint64
	// HardState and Snapshot are the newest; the snapshot is without its data.
	HardState *raftpb.HardState
	Snapshot  *raftpb.SnapshotMetadata
	// MaxPromise is what SaveMaxPromise was told last.
	MaxPromise time.Duration
	// Batches, Entries and Bytes count what was read, also what later records
	// have made void.
	Batches, Entries, Bytes int64
	// Torn is the interrupted batch at the end, if there was one to be seen.
	Torn *Torn
}

// SegmentInfo is one file of a log.
type SegmentInfo struct {
	Name string
	// Size is that of the file.
	Size int64
	// NextIndex is the index of the next entry when the segment began.
	NextIndex uint64
	// FirstBatch is the number of its first batch.
	FirstBatch uint64
}

func (r *Report) fill(v *view, segments []*segment) {
	for _, s := range segments {
		r.Segments = append(r.Segments, SegmentInfo{
			Name: s.name, Size: int64(s.size), NextIndex: s.nextIndex, FirstBatch: s.firstBatch,
		})
	}
	r.FirstIndex, r.LastIndex = v.base.index+1, v.last()
	r.HardState, r.Snapshot, r.MaxPromise = v.hard.proto(), v.snap.GetMetadata(), v.promise
}

// SyncBounds are the bounds of Stats.SyncWithin and Stats.FlushWithin: etcd's, which are
// 1 ms and its doubles, and below them, where good disks are, finer ones.
var SyncBounds = append([]time.Duration{50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond},
	durations.Doubling(time.Millisecond, 14)...)

// Stats counts what a Log has done since Open.
type Stats struct {
	// Syncs is how many batches, or beginnings of a segment, were written and
	// synced; SyncTime is how long that took, and MaxSyncTime the longest.
	Syncs                 uint64
	SyncTime, MaxSyncTime time.Duration
	// FlushTime is what of it the syncs alone took, without the writes.
	FlushTime time.Duration
	// SyncWithin and FlushWithin count those that took no longer than each of
	// SyncBounds, with the write and without.
	SyncWithin, FlushWithin []uint64
	// DirSyncs is how often the directory was synced.
	DirSyncs uint64
	// Entries and Bytes are what was written; Bytes with all that goes along.
	Entries, Bytes uint64
	// Segments is how many segments were begun, Recycled how many became
	// spares.
	Segments, Recycled uint64
}

// counters is Stats while it is counted.
type counters struct {
	dirSyncs           atomic.Uint64
	entries, bytes     atomic.Uint64
	segments, recycled atomic.Uint64
	syncs, flushes     *durations.Histogram
}

func (c *counters) init() { c.syncs, c.flushes = durations.New(SyncBounds), durations.New(SyncBounds) }

// sync counts one write of n bytes that began when begun says, and its sync, which began
// when written says and is over now.
func (c *counters) sync(n int, begun, written time.Time) {
	now := time.Now()
	c.bytes.Add(uint64(n))
	c.syncs.Note(now.Sub(begun))
	c.flushes.Note(now.Sub(written))
}

// Stats returns what the log has done so far.
func (l *Log) Stats() Stats {
	c := &l.stats
	syncs, flushes := c.syncs.Load(), c.flushes.Load()
	return Stats{
		Syncs:       syncs.Count,
		SyncTime:    syncs.Sum,
		MaxSyncTime: syncs.Max,
		SyncWithin:  syncs.Within,
		FlushTime:   flushes.Sum,
		FlushWithin: flushes.Within,
		DirSyncs:    c.dirSyncs.Load(),
		Entries:     c.entries.Load(),
		Bytes:       c.bytes.Load(),
		Segments:    c.segments.Load(),
		Recycled:    c.recycled.Load(),
	}
}
