package raftwal

import (
	"errors"
	"fmt"
	"io"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

var _ raft.Storage = (*Log)(nil)

// InitialState implements raft.Storage. The configuration is that of the snapshot.
func (l *Log) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return nil, nil, ErrClosed
	}
	v := &l.mu.view
	conf := cloneConf(v.snap.GetMetadata().GetConfState())
	if v.hard == (hardState{}) {
		return nil, conf, nil
	}
	return v.hard.proto(), conf, nil
}

// Term implements raft.Storage.
func (l *Log) Term(i uint64) (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return 0, ErrClosed
	}
	return l.mu.view.term(i)
}

// LastIndex implements raft.Storage.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return 0, ErrClosed
	}
	return l.mu.view.last(), nil
}

// FirstIndex implements raft.Storage.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return 0, ErrClosed
	}
	return l.mu.view.base.index + 1, nil
}

// Snapshot implements raft.Storage. It returns the data that was saved. An application
// that stores states elsewhere overrides this method.
func (l *Log) Snapshot() (*raftpb.Snapshot, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return nil, ErrClosed
	}
	return cloneSnapshot(l.mu.view.snap), nil
}

// Entries implements raft.Storage. It reads entries that are not in memory from the disk
// and checks their CRCs. For a range beyond the log it returns raft.ErrUnavailable, for
// which raft.MemoryStorage panics.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	r, err := l.plan(lo, hi, maxSize)
	if err != nil {
		return nil, err
	}
	return r.run()
}

// read is a read of a range of entries: first those on disk, then those in memory. It
// holds references to the segments.
type read struct {
	maxSize  uint64
	lo       uint64
	slots    []slot
	segments []*segment // those of the slots, in order
	memory   []*raftpb.Entry
}

// plan collects, under the lock, the data for run, which needs no lock.
func (l *Log) plan(lo, hi, maxSize uint64) (*read, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	v := &l.mu.view
	switch {
	case l.mu.closed:
		return nil, ErrClosed
	case lo <= v.base.index:
		return nil, raft.ErrCompacted
	case hi > v.last()+1 || lo > hi || v.slots.len() == 0:
		return nil, raft.ErrUnavailable
	}
	r := &read{maxSize: maxSize, lo: lo}
	if lo == hi {
		return r, nil
	}
	from := lo
	if !v.recent.holds(lo) {
		from = hi
		if v.recent.len() > 0 {
			from = min(hi, v.recent.first)
		}
		// No entry is smaller, so no more entries can fit.
		from = min(from, lo+max(1, maxSize/minEntrySize))
		r.slots = v.slots.appendTo(nil, lo-v.first, from-v.first)
		l.retainLocked(r)
	}
	if from < hi && v.recent.holds(from) {
		r.memory = v.recent.from(from, hi, maxSize)
	}
	return r, nil
}

// minEntrySize is the size of an entry with term and index only.
const minEntrySize = 4

// retainLocked takes references to the segments of r's slots.
func (l *Log) retainLocked(r *read) {
	first, last := r.slots[0].segment, r.slots[len(r.slots)-1].segment
	base := l.mu.segments[0].id
	r.segments = append(r.segments, l.mu.segments[uint64(first)-base:uint64(last)-base+1]...)
	for _, s := range r.segments {
		s.retain()
	}
}

func (r *read) run() (entries []*raftpb.Entry, err error) {
	if len(r.slots) == 0 {
		return r.memory, nil
	}
	defer func() { err = errors.Join(err, closeAll(r.segments)) }()
	var w window
	size := uint64(0)
	for i, at := range r.slots {
		s := r.segments[uint64(at.segment)-r.segments[0].id]
		e, err := w.entry(s, int64(at.offset), entryID{term: at.term, index: r.lo + uint64(i)})
		if err != nil {
			return nil, err
		}
		size += entrySize(e)
		if size > r.maxSize && i > 0 {
			return entries, nil
		}
		entries = append(entries, e)
	}
	for _, e := range r.memory {
		if size += entrySize(e); size > r.maxSize {
			break
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// window is a part of a segment, read at once. Entries point into it, so its memory is not
// reused.
type window struct {
	segment *segment
	buf     []byte
	start   int64
}

// readAhead is the number of bytes read for an entry and the following ones.
const readAhead = 64 << 10

// at returns n bytes from offset.
func (w *window) at(s *segment, offset, n int64) ([]byte, error) {
	if offset+n > int64(s.size) {
		return nil, s.corrupt(offset, "a record is longer than the file")
	}
	if w.segment != s || offset < w.start || offset+n > w.start+int64(len(w.buf)) {
		w.segment, w.start = s, offset
		w.buf = make([]byte, min(max(n, readAhead), int64(s.size)-offset))
		if got, err := s.file.ReadAt(w.buf, offset); got < len(w.buf) {
			w.segment = nil
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("raftwal: read %s at %d: %w", s.name, offset, err)
		}
	}
	return w.buf[offset-w.start:][:n], nil
}

// entry reads and checks the entry at offset. Its CRC covers the CRC in the four bytes
// before it.
func (w *window) entry(s *segment, offset int64, want entryID) (*raftpb.Entry, error) {
	b, err := w.at(s, offset-crcSize, crcSize+recordHeader)
	if err != nil {
		return nil, err
	}
	chain, n := le.Uint32(b), int64(le.Uint32(b[crcSize:]))
	size := (recordHeader + n + recordTrailer + 7) &^ 7
	if b, err = w.at(s, offset-crcSize, crcSize+size); err != nil {
		return nil, err
	}
	r, reason := parseRecord(b[crcSize:], chain)
	if reason != "" {
		return nil, s.corrupt(offset, "%s", reason)
	}
	if id, ok := parseEntryID(&r); !ok || id != want {
		return nil, s.corrupt(offset, "this is not entry %d of term %d", want.index, want.term)
	}
	return decodeEntry(&r), nil
}
