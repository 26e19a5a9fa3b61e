package raftwal

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// rotate begins a new segment, with b as its first batch after the head: what
// the log must know although the segments before this one may go.
//
// All of it is synced under the name of a spare. The name of a segment comes
// last, so that a segment is either whole or not there, and a damaged header is
// always damage.
func (l *Log) rotate(b *batch) error {
	w := &l.w
	if w.seg != nil {
		// What an installed snapshot has replaced is room for the new segment, on
		// a full disk the only one.
		if err := l.retire(l.dead()); err != nil {
			return err
		}
	}
	if err := l.encodeHead(); err != nil {
		return err
	}
	h := header{
		size: uint64(l.cfg.SegmentSize), nonce: l.cfg.Nonce(),
		id: 1, firstBatch: w.tail.number, nextIndex: l.mu.view.last() + 1,
	}
	if w.seg != nil {
		h.id, h.prevEnd, h.prevChain = w.seg.id+1, uint64(w.tail.end), w.tail.chain
	}
	if h.id > maxSegmentID {
		return l.fail(errors.New("segment ids have run out"))
	}
	h.sealed = headerSize + uint64(len(w.head.buf))
	if b != nil {
		h.sealed += uint64(len(b.buf))
	}
	if end := h.sealed + uint64(reserve(l.cfg.SegmentSize)); end > h.size {
		h.size = (end + headerSize - 1) / headerSize * headerSize
	}
	return l.install(h, b)
}

// encodeHead writes what a segment begins with into l.w.head.
func (l *Log) encodeHead() error {
	v, head := &l.mu.view, &l.w.head
	head.reset(keepBuffer)
	head.base(v.base)
	if v.hard != (hardState{}) {
		head.hard(v.hard)
	}
	if v.promise != 0 {
		head.promise(v.promise)
	}
	return head.snapshot(recordCheckpoint, v.snap)
}

// install writes the segment into a spare and gives it its name.
func (l *Log) install(h header, b *batch) error {
	w := &l.w
	spare, err := l.spares.take(int64(h.size))
	if err != nil {
		return l.failWrite(fmt.Errorf("make segment %d: %w", h.id, err))
	}
	began := time.Now()
	first := make([]byte, headerSize, headerSize+len(w.head.buf))
	crc := h.encode(first)
	t := tail{end: headerSize, chain: crc, number: h.firstBatch}
	t.chain = w.head.seal(h.nonce, uint64(t.end), t.number, t.chain)
	first = append(first, w.head.buf...)
	t.end, t.number = int64(len(first)), t.number+1
	if _, err = spare.file.WriteAt(first, 0); err == nil && b != nil {
		t.chain = b.seal(h.nonce, uint64(t.end), t.number, t.chain)
		_, err = spare.file.WriteAt(b.buf, t.end)
		t.end, t.number = t.end+int64(len(b.buf)), t.number+1
	}
	if err != nil {
		return l.failWrite(errors.Join(fmt.Errorf("write segment %d: %w", h.id, err), l.spares.discard(spare)))
	}
	written := time.Now()
	if err := spare.file.Sync(); err != nil {
		return l.fail(fmt.Errorf("sync segment %d: %w", h.id, errors.Join(err, spare.file.Close())))
	}
	l.stats.sync(int(t.end), began, written)
	return l.link(&segment{header: h, name: segmentName(h.id), crc: crc, file: spare.file}, spare, t)
}

// link gives a synced spare the name of a segment, durably.
func (l *Log) link(s *segment, spare *spare, t tail) error {
	if err := l.dir.Rename(spare.name, s.name); err != nil {
		return l.fail(fmt.Errorf("name segment %d: %w", s.id, errors.Join(err, spare.file.Close())))
	}
	if err := l.syncDir(); err != nil {
		return l.fail(errors.Join(err, spare.file.Close()))
	}
	s.refs.Store(1)
	l.w.seg, l.w.tail = s, t
	l.w.hard = l.mu.view.hard
	l.stats.segments.Add(1)
	l.mu.Lock()
	l.mu.segments = append(l.mu.segments, s)
	l.mu.Unlock()
	return nil
}

func (l *Log) syncDir() error {
	if err := l.dir.Sync(); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	l.stats.dirSyncs.Add(1)
	return nil
}

func cloneSnapshot(snap *raftpb.Snapshot) *raftpb.Snapshot {
	meta := snap.GetMetadata()
	conf := meta.GetConfState()
	return &raftpb.Snapshot{
		Data: bytes.Clone(snap.GetData()),
		Metadata: &raftpb.SnapshotMetadata{
			Index: new(meta.GetIndex()), Term: new(meta.GetTerm()),
			ConfState: cloneConf(conf),
		},
	}
}

// use is what a batch is for, which says how far into the reserve it may go.
type use int

// The uses, from the one that leaves most to those behind it.
const (
	useBulk     use = iota // entries, or an installed snapshot
	useState               // hard states, promises, and what frees nothing
	useFlush               // a Flush on the way to a Compact that frees a segment
	useSnapshot            // a SaveSnapshot on that way
	useCompact             // that Compact
)

// The bounds of the reserve. It is room for two hundred hard states, a hundred
// Flushes and a large configuration, and little of a segment of the usual size.
const (
	minReserve = 1 << 10
	maxReserve = 64 << 10
)

// reserve is how much of the end of a segment is kept for batches that neither
// append entries nor install a snapshot. On a full disk no segment can be begun,
// and without it neither SaveSnapshot nor Compact could write what frees one.
func reserve(segmentSize int64) int64 {
	return max(minReserve, min(maxReserve, segmentSize/8))
}

// compactSize is the size of Compact's batch.
const compactSize = batchHeader + (recordHeader+basePayload+recordTrailer+7)&^7

// leave is how much of a segment must be left behind a batch: what those need
// that come after it on the way to a free segment. Nothing that is repeated can
// use that up, be it elections, or checkpoints that free nothing.
//
// Invariant: behind a SaveSnapshot that has gone into its share there is room
// for the Compact that frees a segment; and if none has, there is room for one
// and its Compact. Its index is never taken back, so that Compact stays useful.
func (u use) leave(segmentSize int64) int64 {
	all := reserve(segmentSize)
	switch u {
	case useBulk:
		return all
	case useState:
		return all * 6 / 8
	case useFlush:
		return all * 5 / 8
	case useSnapshot:
		return compactSize
	default:
		return 0
	}
}

// useFor returns u if a Compact up to index would free a segment, and otherwise
// what may only use what hard states may.
func (l *Log) useFor(u use, index uint64) use {
	if l.deadAfter(index) == 0 {
		return useState
	}
	return u
}

// deadAfter returns how many segments, from the first, hold no entry beyond
// index. The last segment is never one of them.
func (l *Log) deadAfter(index uint64) int {
	v := &l.mu.view
	first := uint32(l.w.seg.id)
	if next := max(index+1, v.first); next <= v.last() {
		first = v.slots.at(next - v.first).segment
	}
	return int(uint64(first) - l.mu.segments[0].id)
}
