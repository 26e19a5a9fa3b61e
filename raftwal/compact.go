package raftwal

import (
	"errors"
	"fmt"
	"sort"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// SaveSnapshot records durably that the state up to snap's index is stored elsewhere, or
// in snap's data. Call SaveCommit, make the state durable, then call SaveSnapshot. Entries
// stay until Compact. It returns raft.ErrSnapOutOfDate if the log's snapshot is not older,
// and raft.ErrUnavailable for an index beyond the log.
//
// A snapshot without a configuration gets that of the log's snapshot. The commit index is
// raised to the snapshot's, also on disk. On a full disk SaveSnapshot may use the reserve
// (see NoSpaceError) if a Compact up to that index would free a segment.
func (l *Log) SaveSnapshot(snap *raftpb.Snapshot) error {
	l.w.Lock()
	defer l.w.Unlock()
	if l.w.failed != nil {
		return l.w.failed
	}
	snap, err := l.checkpoint(snap)
	if err != nil {
		return err
	}
	hard := l.mu.view.hard
	hard.commit = max(hard.commit, snap.GetMetadata().GetIndex())
	b := &l.w.batch
	b.reset(keepBuffer)
	b.use = l.useFor(useSnapshot, snap.GetMetadata().GetIndex())
	if err := b.snapshot(recordCheckpoint, snap); err != nil {
		return err
	}
	if hard != l.w.hard {
		b.hard(hard)
	}
	if err := l.write(b); err != nil {
		return err
	}
	l.w.hard = hard
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.view.snap, l.mu.view.hard = snap, hard
	return nil
}

// checkpoint checks the snapshot of SaveSnapshot and returns a copy with term and
// configuration.
func (l *Log) checkpoint(snap *raftpb.Snapshot) (*raftpb.Snapshot, error) {
	v := &l.mu.view
	index := snap.GetMetadata().GetIndex()
	if index <= v.snap.GetMetadata().GetIndex() {
		return nil, raft.ErrSnapOutOfDate
	}
	term, err := v.term(index)
	if err != nil {
		return nil, fmt.Errorf("raftwal: snapshot at %d: %w", index, err)
	}
	if err := l.checkSnapshot(snap); err != nil {
		return nil, err
	}
	if t := snap.GetMetadata().GetTerm(); t != 0 && t != term {
		return nil, fmt.Errorf("raftwal: snapshot at %d has term %d, the log has %d", index, t, term)
	}
	snap = cloneSnapshot(snap)
	snap.Metadata.Term = &term
	if len(snap.GetMetadata().GetConfState().GetVoters()) == 0 {
		snap.Metadata.ConfState = cloneConf(v.snap.GetMetadata().GetConfState())
	}
	return snap, nil
}

func (l *Log) checkSnapshot(snap *raftpb.Snapshot) error {
	if index := snap.GetMetadata().GetIndex(); index > maxIndex {
		return fmt.Errorf("%w: a snapshot at index %d", ErrTooLarge, index)
	}
	if n := int64(len(snap.GetData())); n > l.cfg.MaxSnapshotBytes {
		return fmt.Errorf("%w: a snapshot of %d bytes, where %d are allowed", ErrTooLarge, n, l.cfg.MaxSnapshotBytes)
	}
	return nil
}

// Compact removes the entries up to index, and frees segments without other entries. It
// returns raft.ErrCompacted if they are already removed, and ErrNotCheckpointed if index
// is beyond the log's snapshot.
//
// On a full disk it may use the reserve (see NoSpaceError) if it frees a segment. So
// compact up to the snapshot then.
func (l *Log) Compact(index uint64) error {
	l.w.Lock()
	defer l.w.Unlock()
	if l.w.failed != nil {
		return l.w.failed
	}
	v := &l.mu.view
	if index <= v.base.index {
		return raft.ErrCompacted
	}
	if covered := v.snap.GetMetadata().GetIndex(); index > covered {
		return fmt.Errorf("%w: index %d, the snapshot is at %d", ErrNotCheckpointed, index, covered)
	}
	term, err := v.term(index)
	if err != nil {
		return err
	}
	base := entryID{term: term, index: index}
	b := &l.w.batch
	b.reset(keepBuffer)
	b.use = l.useFor(useCompact, index)
	b.base(base)
	// The base record must be durable before a segment is removed.
	if err := l.write(b); err != nil {
		return err
	}
	l.mu.Lock()
	v.compact(base)
	l.mu.Unlock()
	return l.retire(l.dead())
}

// Tail returns the index for a Compact that keeps about that many bytes of the newest
// entries, for slow followers.
func (l *Log) Tail(bytes int64) uint64 {
	l.w.Lock()
	defer l.w.Unlock()
	v := &l.mu.view
	n := v.slots.len()
	if n == 0 {
		return v.last()
	}
	end := v.slots.at(uint64(n) - 1)
	behind := func(i int) int64 {
		at := v.slots.at(uint64(i))
		return int64(end.segment-at.segment)*l.cfg.SegmentSize + int64(end.offset) - int64(at.offset)
	}
	return v.first - 1 + uint64(sort.Search(n, func(i int) bool { return behind(i) <= bytes }))
}

// FreesAt returns the lowest index at which a Compact frees a segment. It returns false if
// the newest segment has all entries. After an installed snapshot the index may already be
// compacted. Then a later Compact, or the next new segment, frees the old ones.
func (l *Log) FreesAt() (index uint64, ok bool) {
	l.w.Lock()
	defer l.w.Unlock()
	v := &l.mu.view
	base, last := v.base.index, v.last()
	if l.deadAfter(last) == 0 {
		return 0, false
	}
	n := sort.Search(int(last-base), func(i int) bool { return l.deadAfter(base+uint64(i)) > 0 })
	return base + uint64(n), true
}

// dead returns the number of segments, from the first on, without entries of the log.
func (l *Log) dead() int { return l.deadAfter(l.mu.view.base.index) }

// retire removes n segments from the log, the oldest first and each durably, so that no
// crash leaves a gap. The base record that covers their entries must already be durable:
// Open refuses a log without the segment of an entry above the base.
func (l *Log) retire(n int) error {
	for range n {
		l.mu.Lock()
		s := l.mu.segments[0]
		l.mu.segments = l.mu.segments[1:]
		idle := s.refs.Load() == 1 // no reader can find the segment any more
		l.mu.Unlock()
		if err := l.recycle(s, idle); err != nil {
			return l.fail(fmt.Errorf("retire %s: %w", s.name, errors.Join(err, s.release())))
		}
		if err := s.release(); err != nil {
			return l.fail(fmt.Errorf("close %s: %w", s.name, err))
		}
	}
	return nil
}

// recycle makes a spare of a segment without readers, or removes the segment. The spare
// must not be written before the directory is synced: a crash could bring back its old
// name.
func (l *Log) recycle(s *segment, idle bool) error {
	name, ok := l.spares.room()
	if !idle || !ok || int64(s.size) != l.cfg.SegmentSize {
		if err := l.dir.Remove(s.name); err != nil {
			return err
		}
		return l.syncDir()
	}
	if err := l.dir.Rename(s.name, name); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	if l.spares.keep(name) {
		l.stats.recycled.Add(1)
		return nil
	}
	return l.dir.Remove(name)
}

func cloneConf(conf *raftpb.ConfState) *raftpb.ConfState {
	if conf == nil {
		return raftpb.EnsureConfState(nil)
	}
	out, _ := proto.Clone(conf).(*raftpb.ConfState)
	return out
}
