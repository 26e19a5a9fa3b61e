package raftwal

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// rotate begins a new segment, with b as its first batch after the head. The head has the
// state that the log needs when earlier segments are removed.
//
// All of that is synced under the name of a spare. Then the file gets its name, so that a
// segment is either complete or missing, and an invalid header is always damage.
func (l *Log) rotate(b *batch) error {
	w := &l.w
	if w.seg != nil {
		// Segments that an installed snapshot has replaced are space for the new one, on a full
		// disk the only space.
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
	return l.writeSegment(h, b)
}

// encodeHead encodes the first batch of a segment into l.w.head.
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

// writeSegment writes the segment into a spare and renames it.
func (l *Log) writeSegment(h header, b *batch) error {
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

// link renames a synced spare durably to a segment.
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

// use is the purpose of a batch, which decides how much of the reserve it may use.
type use int

// The uses: each must leave less than the use before it.
const (
	useBulk     use = iota // entries, or an installed snapshot
	useState               // hard states, promises, and calls that free no segment
	useFlush               // a Flush before a Compact that frees a segment
	useSnapshot            // a SaveSnapshot before such a Compact
	useCompact             // such a Compact
)

// The limits of the reserve. The larger one has room for two hundred hard states, a hundred
// Flushes and a large configuration, and is a small part of a segment of the default size.
const (
	minReserve = 1 << 10
	maxReserve = 64 << 10
)

// reserve returns the size of the end of a segment that entries and installed snapshots do
// not use. On a full disk no segment can be begun. Without the reserve SaveSnapshot and
// Compact could not write the records that free one.
func reserve(segmentSize int64) int64 {
	return max(minReserve, min(maxReserve, segmentSize/8))
}

// compactSize is the size of Compact's batch.
const compactSize = batchHeader + (recordHeader+basePayload+recordTrailer+7)&^7

// leave returns the number of bytes that a batch must leave free behind it, for the calls
// that follow until a segment is free. Repeated calls, such as elections or checkpoints
// that free no segment, cannot use them up.
//
// Invariant: after a SaveSnapshot that has used its share there is room for the Compact that
// frees a segment. Before, there is room for one SaveSnapshot and its Compact. A snapshot's
// index never decreases, so that Compact remains useful.
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

// useFor returns u if a Compact up to index would free a segment, else useState.
func (l *Log) useFor(u use, index uint64) use {
	if l.deadAfter(index) == 0 {
		return useState
	}
	return u
}

// deadAfter returns the number of segments, from the first on, without an entry above
// index. It never includes the last segment.
func (l *Log) deadAfter(index uint64) int {
	v := &l.mu.view
	first := uint32(l.w.seg.id)
	if next := max(index+1, v.first); next <= v.last() {
		first = v.slots.at(next - v.first).segment
	}
	return int(uint64(first) - l.mu.segments[0].id)
}
