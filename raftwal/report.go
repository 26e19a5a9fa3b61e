package raftwal

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
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
