package raftwal

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A batch is a sequence of records that is written, and survives a crash, as a whole. The
// payload of its first record is
//
//	0  uint64  mark: depends on the segment's nonce and the offset
//	8  uint64  number of the batch, one more than that of the batch before
//	16 uint32  length of the following records in bytes
//	20 uint32  their number
const (
	batchPayload = 24
	// batchHeader is the size of that record.
	batchHeader = (recordHeader + batchPayload + recordTrailer + 7) &^ 7
	// batchMark is the offset of the mark in it.
	batchMark = recordHeader
)

// mark returns the mark of a batch at an offset of the segment with this nonce: output
// number offset of splitmix64 with the nonce as seed. Clients do not know the nonce, so they
// cannot write the mark into an entry. A recycled file has old marks of another nonce.
func mark(nonce, offset uint64) uint64 {
	z := nonce + offset*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// batch builds the bytes of one batch. They do not depend on its place until seal.
type batch struct {
	buf   []byte
	count uint32

	use use // useBulk if it has an entry or an installed snapshot
}

// reset begins a new batch. It reuses the memory of the old one up to keep bytes.
func (b *batch) reset(keep int) {
	if cap(b.buf) > keep {
		b.buf = nil
	}
	b.buf = grow(b.buf[:0], batchHeader)
	b.count, b.use = 0, useState
}

func (b *batch) empty() bool { return b.count == 0 }

// record appends a record and returns its payload.
func (b *batch) record(t recordType, flags byte, n int) []byte {
	var payload []byte
	b.buf, payload = appendRecord(b.buf, t, flags, n)
	b.count++
	if t == recordInstall {
		b.use = useBulk
	}
	return payload
}

func (b *batch) entry(e *raftpb.Entry) {
	b.buf = appendEntry(b.buf, e)
	b.count, b.use = b.count+1, useBulk
}

// seal fills in the batch's mark, number and CRCs, and returns the CRC of its last record.
func (b *batch) seal(nonce, offset, number uint64, chain uint32) uint32 {
	_, p := appendRecord(b.buf[:0], recordBatch, 0, batchPayload)
	le.PutUint64(p, mark(nonce, offset))
	le.PutUint64(p[8:], number)
	le.PutUint32(p[16:], uint32(len(b.buf)-batchHeader))
	le.PutUint32(p[20:], b.count)
	return seal(b.buf, chain)
}

// parsedBatch is the parsed first record of a batch.
type parsedBatch struct {
	number uint64
	length int64 // of the whole batch
	count  uint32
	crc    uint32
}

// parseBatchHeader parses the first record of a batch at offset.
func parseBatchHeader(b []byte, nonce, offset uint64, chain uint32) (p parsedBatch, reason string) {
	if le.Uint64(b[batchMark:]) != mark(nonce, offset) {
		return p, "no batch begins here"
	}
	r, reason := parseRecord(b[:batchHeader], chain)
	if reason != "" {
		return p, reason
	}
	if r.kind != recordBatch || len(r.payload) != batchPayload {
		return p, "a batch begins with another record"
	}
	return parsedBatch{
		number: le.Uint64(r.payload[8:]),
		length: batchHeader + int64(le.Uint32(r.payload[16:])),
		count:  le.Uint32(r.payload[20:]),
		crc:    r.crc,
	}, ""
}

// The payloads of the records that are not entries:
//
//	hard     term, vote, commit           8 bytes each
//	base     term, index                  8 bytes each
//	promise  nanoseconds                  8 bytes
//	install, checkpoint
//	         term, index                  8 bytes each
//	         length of the ConfState      4 bytes, and 4 zeros
//	         ConfState as protobuf, then the data to the end
const (
	hardPayload    = 24
	basePayload    = 16
	promisePayload = 8
	snapshotHeader = 24

	snapshotHasData = 1 << 0 // flag: the data is not nil
)

func (b *batch) hard(h hardState) {
	p := b.record(recordHard, 0, hardPayload)
	le.PutUint64(p, h.term)
	le.PutUint64(p[8:], h.vote)
	le.PutUint64(p[16:], h.commit)
}

func (b *batch) base(id entryID) {
	p := b.record(recordBase, 0, basePayload)
	le.PutUint64(p, id.term)
	le.PutUint64(p[8:], id.index)
}

func (b *batch) promise(d time.Duration) {
	le.PutUint64(b.record(recordPromise, 0, promisePayload), uint64(d))
}

func (b *batch) snapshot(t recordType, snap *raftpb.Snapshot) error {
	conf, err := proto.Marshal(snap.GetMetadata().GetConfState())
	if err != nil {
		return fmt.Errorf("raftwal: encode the configuration of a snapshot: %w", err)
	}
	var flags byte
	if snap.Data != nil {
		flags = snapshotHasData
	}
	p := b.record(t, flags, snapshotHeader+len(conf)+len(snap.GetData()))
	le.PutUint64(p, snap.GetMetadata().GetTerm())
	le.PutUint64(p[8:], snap.GetMetadata().GetIndex())
	le.PutUint32(p[16:], uint32(len(conf)))
	le.PutUint32(p[20:], 0)
	copy(p[snapshotHeader:], conf)
	copy(p[snapshotHeader+len(conf):], snap.GetData())
	return nil
}

// parseSnapshot returns a snapshot that shares no memory with the record.
func parseSnapshot(r *record) (*raftpb.Snapshot, error) {
	p := r.payload
	if len(p) < snapshotHeader || uint64(le.Uint32(p[16:])) > uint64(len(p)-snapshotHeader) {
		return nil, errors.New("a snapshot is too short")
	}
	n := snapshotHeader + int(le.Uint32(p[16:]))
	conf := &raftpb.ConfState{}
	if err := proto.Unmarshal(p[snapshotHeader:n], conf); err != nil {
		return nil, fmt.Errorf("the configuration of a snapshot: %w", err)
	}
	snap := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: raftpb.EnsureConfState(conf),
		Term:      new(le.Uint64(p)),
		Index:     new(le.Uint64(p[8:])),
	}}
	if r.flags&snapshotHasData != 0 {
		snap.Data = append([]byte{}, p[n:]...)
	}
	return snap, nil
}
