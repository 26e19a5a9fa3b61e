package raftwal

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"go.etcd.io/raft/v3/raftpb"
)

// recordType is the type of a record's payload.
type recordType byte

// The types are part of the format on disk. Records take effect in order. An entry replaces
// all entries from its index on, so no crash can lose the truncation and keep the new entries.
// An installed snapshot replaces the log, a checkpoint only the result of Snapshot.
const (
	recordBatch      recordType = 1 // the first of a batch, with its length
	recordEntry      recordType = 2 // a raft entry
	recordHard       recordType = 3 // term, vote, commit
	recordInstall    recordType = 4 // a snapshot that replaces the log
	recordCheckpoint recordType = 5 // a snapshot of a prefix of the log
	recordBase       recordType = 6 // all entries up to here are compacted
	recordPromise    recordType = 7 // the longest promise, for the hold after a restart
)

// A record is
//
//	0  uint32  length of the payload
//	4  uint8   type
//	5  uint8   flags of the type
//	6  uint16  zero
//	8  payload, then zeros until the end of the next field is a multiple of 8
//	   uint32  CRC-32C of all that, xor 0x9e3779b1 times the four bytes before
//
// The four bytes before a record are the CRC of the record before it, or of the segment's
// header, which has a random nonce. So a record is valid only behind exactly the bytes behind
// which it was written: neither the old content of a recycled file, nor the rest of an earlier
// attempt at the same place, can complete a batch. All integers are little-endian.
const (
	recordHeader  = 8
	recordTrailer = 4
	crcSize       = 4
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// chainFactor is odd, so that the multiplication is reversible.
const chainFactor = 0x9e3779b1

// chainCRC returns the CRC of b behind bytes with the CRC chain. A CRC with chain as its
// initial value would also be correct, but then the CPU could not compute the CRCs of
// several records in parallel.
func chainCRC(chain uint32, b []byte) uint32 {
	return crc32.Checksum(b, castagnoli) ^ chain*chainFactor
}

// recordSize returns the size of a record with a payload of n bytes.
func recordSize(n int) int { return (recordHeader + n + recordTrailer + 7) &^ 7 }

// appendRecord appends a record and returns its payload. seal fills in the CRC.
func appendRecord(b []byte, t recordType, flags byte, n int) (whole, payload []byte) {
	start, size := len(b), recordSize(n)
	b = grow(b, size)
	head := b[start : start+recordHeader]
	le.PutUint32(head, uint32(n))
	head[4], head[5], head[6], head[7] = byte(t), flags, 0, 0
	clear(b[start+recordHeader+n : start+size])
	return b, b[start+recordHeader : start+recordHeader+n]
}

// grow extends b by n bytes, which are not cleared.
func grow(b []byte, n int) []byte {
	if len(b)+n > cap(b) {
		b = append(make([]byte, 0, max(len(b)+n, 2*cap(b))), b...)
	}
	return b[:len(b)+n]
}

// seal fills in the CRCs of the records in b, which follow the CRC chain. It returns the
// last CRC.
func seal(b []byte, chain uint32) uint32 {
	for len(b) > 0 {
		size := recordSize(int(le.Uint32(b)))
		chain = chainCRC(chain, b[:size-crcSize])
		le.PutUint32(b[size-crcSize:], chain)
		b = b[size:]
	}
	return chain
}

// record is a parsed record. The payload is a part of the buffer.
type record struct {
	kind    recordType
	flags   byte
	payload []byte
	size    int
	crc     uint32
}

// parseRecord parses the record at the beginning of b, behind bytes with the CRC chain. If
// there is no valid record, reason is not empty.
func parseRecord(b []byte, chain uint32) (r record, reason string) {
	if len(b) < recordHeader+recordTrailer {
		return r, "a record begins where there is no room for one"
	}
	n := le.Uint32(b)
	if uint64(n) > uint64(len(b)-recordHeader-recordTrailer) || recordSize(int(n)) > len(b) {
		return r, "a record does not fit into its batch"
	}
	size := recordSize(int(n))
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

// kindName returns the name of a record's type.
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

// An entry's payload is its term and index, 8 bytes each, and the data. The record's flags
// contain the type and which fields are present: raft counts no bytes for a nil field, but
// counts some for a zero one.
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

// entryID identifies an entry.
type entryID struct{ term, index uint64 }

func idOf(e *raftpb.Entry) entryID { return entryID{term: e.GetTerm(), index: e.GetIndex()} }

// parseEntryID returns the term and index of an entry's record.
func parseEntryID(r *record) (id entryID, ok bool) {
	if r.kind != recordEntry || len(r.payload) < entryHeader {
		return entryID{}, false
	}
	return entryID{term: le.Uint64(r.payload), index: le.Uint64(r.payload[8:])}, true
}

// storedEntry is an entry with the memory for its pointers, so that decoding one needs one
// allocation.
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

// entrySize returns proto.Size(e), in which raft counts, without reflection.
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
