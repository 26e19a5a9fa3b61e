package raftwal

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// hardState is a raft HardState as a value. The zero value is an empty one.
type hardState struct{ term, vote, commit uint64 }

func hardOf(h *raftpb.HardState) hardState {
	return hardState{term: h.GetTerm(), vote: h.GetVote(), commit: h.GetCommit()}
}

func (h hardState) proto() *raftpb.HardState {
	return &raftpb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}
}

// cover raises the commit index to that of a snapshot, unless h is empty.
func (h *hardState) cover(snap uint64) {
	if *h != (hardState{}) {
		h.commit = max(h.commit, snap)
	}
}

// view is the state of the log after its records, as readers see it.
type view struct {
	hard    hardState
	snap    *raftpb.Snapshot // never nil; immutable
	promise time.Duration

	// base is the last entry that was compacted, or that a snapshot replaced.
	base entryID
	// slots are the entries from index first on. While segments are read, first may be above
	// base+1: the entries between were in removed segments, and a later base record must
	// cover them.
	first uint64
	slots slots
	// recent holds a suffix of the entries.
	recent recent
}

func newView(nextIndex uint64, maxRecent int64) view {
	return view{
		snap:   raftpb.EnsureSnapshot(nil),
		first:  nextIndex,
		recent: recent{limit: maxRecent},
	}
}

func (v *view) last() uint64 { return v.first + uint64(v.slots.len()) - 1 }

// put adds the entry id as the last one. It removes entries from its index on, which are of
// a former leader. The index must be above base and at most last+1.
func (v *view) put(id entryID, at place) {
	if id.index < v.first {
		v.first = id.index
		v.slots.truncate(0)
	}
	if n := id.index - v.first; n < uint64(v.slots.len()) {
		v.slots.truncate(n)
	}
	v.slots.push(slot{place: at, term: id.term})
}

// install replaces the log by a snapshot.
func (v *view) install(snap *raftpb.Snapshot) {
	v.snap = snap
	v.base = entryID{term: snap.GetMetadata().GetTerm(), index: snap.GetMetadata().GetIndex()}
	v.first = v.base.index + 1
	v.slots.truncate(0)
	v.recent.clear()
}

// compact removes the entries up to base, and keeps the ID of base.
func (v *view) compact(base entryID) {
	v.base = base
	if base.index < v.first {
		return
	}
	v.slots.drop(base.index + 1 - v.first)
	v.first = base.index + 1
	v.recent.forget(base.index)
}

// term is raft.Storage's Term.
func (v *view) term(i uint64) (uint64, error) {
	switch {
	case i < v.base.index:
		return 0, raft.ErrCompacted
	case i == v.base.index:
		return v.base.term, nil
	case i > v.last():
		return 0, raft.ErrUnavailable
	default:
		return v.slots.at(i - v.first).term, nil
	}
}

// place is the place of a record.
type place struct{ segment, offset uint32 }

// slot is the in-memory index of an entry.
type slot struct {
	place
	term uint64
}

// chunkLen is the number of slots allocated at once. A slice that doubles would copy
// megabytes within one Save.
const chunkLen = 4096

// slots is a queue of slots that grows and shrinks at its end and shrinks at
// its beginning, in constant time.
type slots struct {
	chunks []*[chunkLen]slot
	head   int // removed slots of the first chunk
	n      int
	// free has chunks for reuse, so that a log that is compacted as fast as it grows
	// allocates none.
	free []*[chunkLen]slot
}

// maxFree limits free to 4 MiB.
const maxFree = 64

func (s *slots) len() int { return s.n }

func (s *slots) at(i uint64) slot {
	i += uint64(s.head)
	return s.chunks[i/chunkLen][i%chunkLen]
}

func (s *slots) push(v slot) {
	end := s.head + s.n
	if end == len(s.chunks)*chunkLen {
		s.chunks = append(s.chunks, s.chunk())
	}
	s.chunks[end/chunkLen][end%chunkLen] = v
	s.n++
}

// truncate keeps the first n slots.
func (s *slots) truncate(n uint64) {
	s.n = int(n)
	keep := (s.head + s.n + chunkLen - 1) / chunkLen
	s.release(s.chunks[keep:])
	s.chunks = s.chunks[:keep]
}

// drop removes the first n slots.
func (s *slots) drop(n uint64) {
	s.head += int(n)
	s.n -= int(n)
	gone := s.head / chunkLen
	if gone == 0 {
		return
	}
	s.release(s.chunks[:gone])
	left := copy(s.chunks, s.chunks[gone:])
	clear(s.chunks[left:])
	s.chunks = s.chunks[:left]
	s.head %= chunkLen
}

func (s *slots) chunk() *[chunkLen]slot {
	last := len(s.free) - 1
	if last < 0 {
		return new([chunkLen]slot)
	}
	c := s.free[last]
	s.free = s.free[:last]
	return c
}

func (s *slots) release(chunks []*[chunkLen]slot) {
	for i, c := range chunks {
		if len(s.free) < maxFree {
			s.free = append(s.free, c)
		}
		chunks[i] = nil
	}
}

// appendTo appends the slots in [lo, hi) to out.
func (s *slots) appendTo(out []slot, lo, hi uint64) []slot {
	for i := lo; i < hi; i++ {
		out = append(out, s.at(i))
	}
	return out
}

// recent keeps the newest entries in memory, up to its limit. They are a suffix of the log,
// which may be empty. They are shared with the callers of Save and Entries, and immutable.
type recent struct {
	limit int64 // in bytes, as raft counts them

	first   uint64 // index of entries[head]
	entries []sized
	head    int // entries before it are removed
	bytes   int64
}

// sized is an entry and its size, so that removing it does not read it.
type sized struct {
	entry *raftpb.Entry
	size  int64
}

func (r *recent) len() int { return len(r.entries) - r.head }

// from returns the entries in [lo, hi), which must be held, as raft limits
// them: the longest prefix of at most maxSize bytes, but at least one entry.
func (r *recent) from(lo, hi, maxSize uint64) []*raftpb.Entry {
	held := r.entries[r.head+int(lo-r.first) : r.head+int(hi-r.first)]
	size := uint64(0)
	for i := range held {
		if size += uint64(held[i].size); size > maxSize && i > 0 {
			held = held[:i]
			break
		}
	}
	out := make([]*raftpb.Entry, len(held))
	for i := range held {
		out[i] = held[i].entry
	}
	return out
}

// holds reports whether entry i is held.
func (r *recent) holds(i uint64) bool {
	return i >= r.first && i-r.first < uint64(r.len())
}

// put adds consecutive entries. It removes entries from their first index on, and old ones
// above the limit.
func (r *recent) put(entries []*raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	first := entries[0].GetIndex()
	r.truncate(first)
	if r.len() == 0 {
		r.first = first
	}
	if len(r.entries)+len(entries) > cap(r.entries) && r.head > len(r.entries)/2 {
		n := copy(r.entries, r.entries[r.head:])
		clear(r.entries[n:])
		r.entries, r.head = r.entries[:n], 0
	}
	for _, e := range entries {
		size := int64(entrySize(e))
		r.entries = append(r.entries, sized{entry: e, size: size})
		r.bytes += size
	}
	for r.bytes > r.limit && r.len() > 0 {
		r.drop()
	}
}

// truncate removes the entries from index on.
func (r *recent) truncate(index uint64) {
	if index <= r.first {
		r.clear()
		return
	}
	for r.len() > 0 && r.first+uint64(r.len()) > index {
		last := len(r.entries) - 1
		r.bytes -= r.entries[last].size
		r.entries[last] = sized{}
		r.entries = r.entries[:last]
	}
}

// forget removes the entries up to index.
func (r *recent) forget(index uint64) {
	for r.len() > 0 && r.first <= index {
		r.drop()
	}
}

func (r *recent) drop() {
	r.bytes -= r.entries[r.head].size
	r.entries[r.head] = sized{}
	r.head++
	r.first++
}

func (r *recent) clear() {
	clear(r.entries)
	r.entries, r.head, r.bytes = r.entries[:0], 0, 0
}
