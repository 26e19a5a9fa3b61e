package raftwal

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"go.etcd.io/raft/v3/raftpb"
)

// recordType says what a record's payload is.
type recordType byte

// The types are part of the format on disk.
const (
	recordBatch      recordType = 1 // begins a batch, says where it ends
	recordEntry      recordType = 2 // a raft entry
	recordHard       recordType = 3 // term, vote, commit
	recordInstall    recordType = 4 // a snapshot that replaces the log
	recordCheckpoint recordType = 5 // a snapshot of what the log holds
	recordBase       recordType = 6 // everything up to here is compacted
	recordPromise    recordType = 7 // the longest promise that a restart holds for
)

// A record is
//
//	0  uint32  length of the payload
//	4  uint8   type
//	5  uint8   flags, whose meaning depends on the type
//	6  uint16  zero
//	8  payload, then zeros until the end of the next field is a multiple of 8
//	   uint32  CRC-32C of all that, chained to the four bytes in front
//
// and the four bytes in front of a record are the CRC of what is there: the
// record before it, or the segment's header. All integers are little-endian.
const (
	recordHeader  = 8
	recordTrailer = 4
	crcSize       = 4
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// chainFactor is odd, so that multiplying by it loses nothing.
const chainFactor = 0x9e3779b1

// chainCRC returns the CRC of b behind something whose CRC is chain. To begin
// the CRC with chain would do the same, but then the CPU could not begin one
// record's before it has finished the other's.
func chainCRC(chain uint32, b []byte) uint32 {
	return crc32.Checksum(b, castagnoli) ^ chain*chainFactor
}

// recordSize returns the size of a record with a payload of n bytes.
func recordSize(n int) int { return (recordHeader + n + recordTrailer + 7) &^ 7 }

// appendRecord appends a record without its CRC, which seal fills in, and
// returns the place of its payload.
func appendRecord(b []byte, t recordType, flags byte, n int) (whole, payload []byte) {
	start, size := len(b), recordSize(n)
	b = grow(b, size)
	head := b[start : start+recordHeader]
	le.PutUint32(head, uint32(n))
	head[4], head[5], head[6], head[7] = byte(t), flags, 0, 0
	clear(b[start+recordHeader+n : start+size])
	return b, b[start+recordHeader : start+recordHeader+n]
}

// grow extends b by n bytes of anything.
func grow(b []byte, n int) []byte {
	if len(b)+n > cap(b) {
		b = append(make([]byte, 0, max(len(b)+n, 2*cap(b))), b...)
	}
	return b[:len(b)+n]
}

// seal fills in the CRCs of the records in b, chained to chain, and returns
// the last one.
func seal(b []byte, chain uint32) uint32 {
	for len(b) > 0 {
		size := recordSize(int(le.Uint32(b)))
		chain = chainCRC(chain, b[:size-crcSize])
		le.PutUint32(b[size-crcSize:], chain)
		b = b[size:]
	}
	return chain
}

// record is a record as it was read. The payload is part of the buffer.
type record struct {
	kind    recordType
	flags   byte
	payload []byte
	size    int
	crc     uint32
}

// parseRecord reads the record that b begins with, behind something whose CRC
// is chain.
// If there is none, reason says why.
func parseRecord(b []byte, chain uint32) (r record, reason string) {
	if len(b) < recordHeader+recordTrailer {
		return r, "a record begins where there is no room for one"
	}
	n := le.Uint32(b)
	if uint64(n) > uint64(len(b)-recordHeader-recordTrailer) {
		return r, "a record is longer than what it is in"
	}
	size := recordSize(int(n))
	if size > len(b) {
		return r, "a record is longer than what it is in"
	}
	crc := chainCRC(chain, b[:size-crcSize])
	if crc != le.Uint32(b[size-crcSize:size]) {
		return r, "the CRC of a record does not match"
	}
	return record{
		kind:    recordType(b[4]),
		flags:   b[5],
		payload: b[recordHeader : recordHeader+n : recordHeader+n],
		size:    size,
		crc:     crc,
	}, ""
}

// kindName returns a record's type in words.
func kindName(t recordType) string {
	switch t {
	case recordBatch:
		return "batch"
	case recordEntry:
		return "entry"
	case recordHard:
		return "hard state"
	case recordInstall:
		return "installed snapshot"
	case recordCheckpoint:
		return "checkpoint"
	case recordBase:
		return "base"
	case recordPromise:
		return "promise"
	default:
		return "unknown"
	}
}

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
