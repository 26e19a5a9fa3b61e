package raftwal

import (
	"math/bits"

	"go.etcd.io/raft/v3/raftpb"
)

// An entry's payload is its term and index, 8 bytes each, and the data. The
// record's flags say which of its fields are present, since raft tells a nil
// field from a zero one when it counts bytes, and hold the type.
const (
	entryHeader = 16

	entryHasTerm  = 1 << 0
	entryHasIndex = 1 << 1
	entryHasType  = 1 << 2
	entryHasData  = 1 << 3
	entryTypeBits = 4 // the upper half of the flags
	maxEntryType  = 15
)

// appendEntry appends e's record without its CRC.
func appendEntry(b []byte, e *raftpb.Entry) []byte {
	flags := byte(e.GetType()) << entryTypeBits
	if e.Term != nil {
		flags |= entryHasTerm
	}
	if e.Index != nil {
		flags |= entryHasIndex
	}
	if e.Type != nil {
		flags |= entryHasType
	}
	if e.Data != nil {
		flags |= entryHasData
	}
	b, p := appendRecord(b, recordEntry, flags, entryHeader+len(e.GetData()))
	le.PutUint64(p, e.GetTerm())
	le.PutUint64(p[8:], e.GetIndex())
	copy(p[entryHeader:], e.GetData())
	return b
}

// entryID is what tells entries apart.
type entryID struct{ term, index uint64 }

func idOf(e *raftpb.Entry) entryID { return entryID{term: e.GetTerm(), index: e.GetIndex()} }

// parseEntryID returns the term and index of an entry's record.
func parseEntryID(r *record) (id entryID, ok bool) {
	if r.kind != recordEntry || len(r.payload) < entryHeader {
		return entryID{}, false
	}
	return entryID{term: le.Uint64(r.payload), index: le.Uint64(r.payload[8:])}, true
}

// storedEntry is an entry with room for what its pointers point to, so that
// reading one back is one allocation.
type storedEntry struct {
	entry       raftpb.Entry
	term, index uint64
	kind        raftpb.EntryType
}

// decodeEntry returns the entry of a record for which parseEntryID holds. It keeps
// the record's payload.
func decodeEntry(r *record) *raftpb.Entry {
	s := &storedEntry{}
	if r.flags&entryHasTerm != 0 {
		s.term = le.Uint64(r.payload)
		s.entry.Term = &s.term
	}
	if r.flags&entryHasIndex != 0 {
		s.index = le.Uint64(r.payload[8:])
		s.entry.Index = &s.index
	}
	if r.flags&entryHasType != 0 {
		s.kind = raftpb.EntryType(r.flags >> entryTypeBits)
		s.entry.Type = &s.kind
	}
	if r.flags&entryHasData != 0 {
		s.entry.Data = r.payload[entryHeader:]
	}
	return &s.entry
}

// entrySize is proto.Size(e), which raft counts in, without reflection.
func entrySize(e *raftpb.Entry) uint64 {
	n := 0
	if e.Type != nil {
		n += 1 + varintSize(uint64(e.GetType()))
	}
	if e.Term != nil {
		n += 1 + varintSize(e.GetTerm())
	}
	if e.Index != nil {
		n += 1 + varintSize(e.GetIndex())
	}
	if e.Data != nil {
		n += 1 + varintSize(uint64(len(e.GetData()))) + len(e.GetData())
	}
	return uint64(n)
}

func varintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
