package raftwal

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Update is the data of one Ready or MsgStorageAppend to make durable. Each part may be
// empty. Entries must not be changed afterwards.
type Update struct {
	Entries   []*raftpb.Entry
	HardState *raftpb.HardState
	// Snapshot is from a leader. It replaces the log before Entries are appended. At index
	// 0 it sets the configuration of an empty log.
	Snapshot *raftpb.Snapshot
}

// Save makes entries, hard and snap durable with one write and one sync: after a crash
// the disk has all of them or none. Entries replace the log from their first index on, and
// must not be changed afterwards. Save skips compacted entries, and a snapshot that is not
// newer than the log's.
//
// It returns ErrCommitBeyondLog if the commit index would be beyond the last entry.
//
// If only the commit index has changed, Save writes nothing. The next Save that writes
// contains it. That is enough for raft, but not for all applications: see SaveCommit.
func (l *Log) Save(entries []*raftpb.Entry, hard *raftpb.HardState, snap *raftpb.Snapshot) error {
	one := [1]Update{{Entries: entries, HardState: hard, Snapshot: snap}}
	return l.SaveAll(one[:])
}

// SaveAll is Save for several updates in order, with one write and one sync.
func (l *Log) SaveAll(updates []Update) error {
	l.w.Lock()
	defer l.w.Unlock()
	if l.w.failed != nil {
		return l.w.failed
	}
	d, err := l.encode(updates)
	if err != nil {
		return err
	}
	if !l.w.batch.empty() {
		if err := l.write(&l.w.batch); err != nil {
			return err
		}
		l.w.hard = d.hard
	}
	l.publish(updates, d)
	return nil
}

// Flush makes the newest commit index durable, which Save does not write alone. Without an
// Appender, an application may call it instead of SaveCommit. On a full disk it may use
// the reserve (see NoSpaceError) if a Compact up to that index would free a segment.
func (l *Log) Flush() error {
	l.w.Lock()
	defer l.w.Unlock()
	if l.w.failed != nil {
		return l.w.failed
	}
	return l.flushLocked(l.useFor(useFlush, l.mu.view.hard.commit))
}

func (l *Log) flushLocked(u use) error {
	if l.w.hard == l.mu.view.hard {
		return nil
	}
	return l.writeHard(u, l.mu.view.hard)
}

func (l *Log) writeHard(u use, hard hardState) error {
	b := &l.w.batch
	b.reset(keepBuffer)
	b.use = u
	b.hard(hard)
	if err := l.write(b); err != nil {
		return err
	}
	l.w.hard = hard
	return nil
}

// keepBuffer is the memory that the log keeps for the next batch.
const keepBuffer = 4 << 20

// draft has the part of the view that decides which updates are valid.
type draft struct {
	hard       hardState
	snap       uint64 // index
	base, last uint64
}

// encode checks the updates and writes their records into l.w.batch.
func (l *Log) encode(updates []Update) (draft, error) {
	v := &l.mu.view // only writers change it
	d := draft{hard: v.hard, snap: v.snap.GetMetadata().GetIndex(), base: v.base.index, last: v.last()}
	b := &l.w.batch
	b.reset(keepBuffer)
	l.w.offsets = l.w.offsets[:0]
	for i := range updates {
		u := &updates[i]
		if d.accepts(u.Snapshot) {
			if err := l.checkSnapshot(u.Snapshot); err != nil {
				return d, err
			}
			if err := b.snapshot(recordInstall, u.Snapshot); err != nil {
				return d, err
			}
			d.snap = u.Snapshot.GetMetadata().GetIndex()
			d.base, d.last = d.snap, d.snap
		}
		if err := l.encodeEntries(&d, u.Entries); err != nil {
			return d, err
		}
		if !raft.IsEmptyHardState(u.HardState) {
			commit := d.hard.commit
			d.hard = hardOf(u.HardState)
			d.hard.commit = max(d.hard.commit, commit)
		}
		// SaveSnapshot may have run while the update waited in an Appender. raft does not
		// start if the commit index is below the snapshot.
		d.hard.cover(d.snap)
	}
	if d.hard.commit > d.last {
		return d, fmt.Errorf("%w: commit index %d, last entry %d", ErrCommitBeyondLog, d.hard.commit, d.last)
	}
	old := l.w.hard
	// A commit index that changed alone waits for the next Save that writes. If it were written
	// without a sync, two batches could be unsynced, and a crash could lose only the first.
	if d.hard.term != old.term || d.hard.vote != old.vote || (!b.empty() && d.hard != old) {
		b.hard(d.hard)
	}
	return d, nil
}

// accepts reports whether a snapshot is newer than the log's. With a snapshot at index 0
// an application sets the first configuration of an empty log.
func (d *draft) accepts(snap *raftpb.Snapshot) bool {
	index := snap.GetMetadata().GetIndex()
	if index == 0 {
		return d.last == 0 && len(snap.GetMetadata().GetConfState().GetVoters()) > 0
	}
	return index > d.snap
}

func (l *Log) encodeEntries(d *draft, entries []*raftpb.Entry) error {
	entries = above(d.base, entries)
	if len(entries) == 0 {
		return nil
	}
	first := entries[0].GetIndex()
	if first > d.last+1 || first > maxIndex {
		return fmt.Errorf("%w: entry %d after %d", ErrGap, first, d.last)
	}
	b := &l.w.batch
	for i, e := range entries {
		if e.GetIndex() != first+uint64(i) {
			return fmt.Errorf("%w: entry %d in the place of %d", ErrGap, e.GetIndex(), first+uint64(i))
		}
		if e.GetType() < 0 || e.GetType() > maxEntryType {
			return fmt.Errorf("raftwal: entry %d has the unknown type %d", e.GetIndex(), e.GetType())
		}
		if int64(len(b.buf)+len(e.GetData())) > l.cfg.MaxBatchBytes {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, l.cfg.MaxBatchBytes)
		}
		l.w.offsets = append(l.w.offsets, uint32(len(b.buf)))
		b.entry(e)
	}
	d.last = first + uint64(len(entries)) - 1
	return nil
}

// above returns the entries beyond base, as raft.MemoryStorage does.
func above(base uint64, entries []*raftpb.Entry) []*raftpb.Entry {
	if len(entries) == 0 || entries[0].GetIndex() > base {
		return entries
	}
	skip := base + 1 - entries[0].GetIndex()
	if skip >= uint64(len(entries)) {
		return nil
	}
	return entries[skip:]
}

// write appends b to the log, in a new segment if the last one is full.
func (l *Log) write(b *batch) error {
	w := &l.w
	if w.tail.end+int64(len(b.buf))+b.use.leave(l.cfg.SegmentSize) > int64(w.seg.size) {
		return l.rotate(b)
	}
	began := time.Now()
	chain := b.seal(w.seg.nonce, uint64(w.tail.end), w.tail.number, w.tail.chain)
	if _, err := w.seg.file.WriteAt(b.buf, w.tail.end); err != nil {
		// A partial batch is invalid, and the next one overwrites it. If a crash mixes the two,
		// the chained CRC is wrong, and neither was acknowledged.
		return l.failWrite(fmt.Errorf("write %s: %w", w.seg.name, err))
	}
	written := time.Now()
	if err := w.seg.file.Sync(); err != nil {
		return l.fail(fmt.Errorf("sync %s: %w", w.seg.name, err))
	}
	l.stats.sync(len(b.buf), began, written)
	w.tail = tail{end: w.tail.end + int64(len(b.buf)), chain: chain, number: w.tail.number + 1}
	l.spares.follow(w.tail.end, int64(w.seg.size))
	return nil
}

// failWrite makes err final, unless the disk is full.
func (l *Log) failWrite(err error) error {
	if err = noSpace(err); errors.Is(err, ErrNoSpace) {
		return err
	}
	return l.fail(err)
}

// publish makes durable updates, and the commit index, visible to readers.
func (l *Log) publish(updates []Update, d draft) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.mu.view
	at := place{segment: uint32(l.w.seg.id)}
	start := uint32(l.w.tail.end) - uint32(len(l.w.batch.buf))
	offsets := l.w.offsets
	for i := range updates {
		u := &updates[i]
		check := draft{snap: v.snap.GetMetadata().GetIndex(), last: v.last()}
		if check.accepts(u.Snapshot) {
			v.install(cloneSnapshot(u.Snapshot))
		}
		added := above(v.base.index, u.Entries)
		for j, e := range added {
			at.offset = start + offsets[j]
			v.put(idOf(e), at)
		}
		v.recent.put(added)
		offsets = offsets[len(added):]
	}
	v.hard = d.hard
	l.stats.entries.Add(uint64(len(l.w.offsets)))
}

// SaveCommit makes a commit index durable. It writes nothing if the index on disk is not
// lower. Save does not write a commit index that changed alone, so call SaveCommit
//   - before a state that is stored elsewhere becomes durable. raft does not start if the
//     applied index is above the commit index on disk. An application that starts raft
//     with the smaller of the two need not call it for that.
//   - with the index of a configuration change before raft's ApplyConfChange, and before
//     a client learns of the change. After a crash raft uses the configuration as of the
//     commit index on disk. A removed member may be gone for good by then, and the old
//     configuration could have lost its majority.
//
// Flush is not enough if updates wait in an Appender, because the commit index may be in
// one of them. SaveCommit waits for a write in progress, but not for waiting updates. So the
// functions that an Appender calls may wait for SaveCommit without a deadlock.
//
// It returns ErrCommitBeyondLog for an index beyond the last entry. On a full disk it may
// use the reserve (see NoSpaceError) if a Compact up to that index would free a segment.
func (l *Log) SaveCommit(index uint64) error {
	l.w.Lock()
	defer l.w.Unlock()
	if l.w.failed != nil {
		return l.w.failed
	}
	if index <= l.w.hard.commit {
		return nil
	}
	v := &l.mu.view // only writers change it
	if last := v.last(); index > last {
		return fmt.Errorf("%w: commit index %d, last entry %d", ErrCommitBeyondLog, index, last)
	}
	hard := v.hard
	hard.commit = max(hard.commit, index)
	if err := l.writeHard(l.useFor(useFlush, index), hard); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v.hard = hard
	return nil
}
