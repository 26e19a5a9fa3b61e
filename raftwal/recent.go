package raftwal

import "go.etcd.io/raft/v3/raftpb"

// recent keeps the newest entries in memory, as many as its limit allows. They
// are a suffix of the log, possibly empty. The entries are the caller's and
// nobody changes them.
type recent struct {
	limit int64 // in bytes, as raft counts them

	first   uint64 // index of entries[head]
	entries []sized
	head    int // entries before it are forgotten
	bytes   int64
}

// sized is an entry and its size, so that forgetting it does not touch it.
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

// put adds entries, which continue each other, forgets those from their first
// index on, and as many old ones as the limit demands.
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

// truncate forgets the entries from index on.
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

// forget drops the entries up to index.
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
