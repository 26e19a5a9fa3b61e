package raftwal

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

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

// parseSnapshot returns a snapshot that keeps nothing of the record.
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
