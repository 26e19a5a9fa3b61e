package raftwal

import (
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/durations"
)

// Report describes the contents of a log when it was opened.
type Report struct {
	// Segments are the files in order.
	Segments []SegmentInfo
	// FirstIndex and LastIndex are the bounds of the entries. Without entries, FirstIndex is
	// LastIndex+1.
	FirstIndex, LastIndex uint64
	// HardState and Snapshot are the newest; the snapshot is without its data.
	HardState *raftpb.HardState
	Snapshot  *raftpb.SnapshotMetadata
	// LongestPromise is the last argument of SaveLongestPromise.
	LongestPromise time.Duration
	// Batches, Entries and Bytes count all that was read, also entries that later ones replace.
	Batches, Entries, Bytes int64
	// Torn is the incomplete batch at the end. It is nil without one, or if a crash has
	// lost its first bytes.
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
	r.HardState, r.Snapshot, r.LongestPromise = v.hard.proto(), v.snap.GetMetadata(), v.promise
}

// SyncBounds are the bounds of Stats.SyncWithin and Stats.FlushWithin. From 1 ms on they
// double, as etcd's do. Finer ones below are for fast disks.
var SyncBounds = append([]time.Duration{50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond},
	durations.Doubling(time.Millisecond, 14)...)

// Stats has the counters of a Log since Open.
type Stats struct {
	// Syncs counts writes of batches and of new segments, each with its sync. SyncTime is
	// their total time, MaxSyncTime the longest: both include the write.
	Syncs                 uint64
	SyncTime, MaxSyncTime time.Duration
	// FlushTime is the total time of the syncs, without the writes.
	FlushTime time.Duration
	// SyncWithin counts writes with their syncs that took at most each of SyncBounds.
	// FlushWithin counts the syncs alone.
	SyncWithin, FlushWithin []uint64
	// DirSyncs counts syncs of the directory.
	DirSyncs uint64
	// Entries counts written entries. Bytes counts written bytes, without the zeros of new segments.
	Entries, Bytes uint64
	// Segments counts new segments, Recycled freed segments that are kept for reuse.
	Segments, Recycled uint64
}

// counters has the live values of Stats.
type counters struct {
	dirSyncs           atomic.Uint64
	entries, bytes     atomic.Uint64
	segments, recycled atomic.Uint64
	syncs, flushes     *durations.Histogram
}

func (c *counters) init() { c.syncs, c.flushes = durations.New(SyncBounds), durations.New(SyncBounds) }

// sync counts a write of n bytes and its sync. The write began at begun, the sync began at
// written and has just ended.
func (c *counters) sync(n int, begun, written time.Time) {
	now := time.Now()
	c.bytes.Add(uint64(n))
	c.syncs.Note(now.Sub(begun))
	c.flushes.Note(now.Sub(written))
}

// Stats returns the present counters.
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
