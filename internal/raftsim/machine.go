package raftsim

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// machine is the state machine: a hash over all entries applied, and the
// configuration.
type machine struct {
	applied uint64
	chain   uint64
	conf    *raftpb.ConfState
}

// initialChain is the state at index 1.
const initialChain = 1

// link is the state after an entry.
func link(chain uint64, e *raftpb.Entry) uint64 {
	t := trace{hash: chain}
	t.mix(e.GetIndex(), fingerprint(e))
	return t.hash
}

// fingerprint is of an entry but for its index.
func fingerprint(e *raftpb.Entry) uint64 {
	t := trace{hash: 1469598103934665603}
	t.mix(e.GetTerm(), uint64(e.GetType()), uint64(len(e.GetData())))
	for _, b := range e.GetData() {
		t.mix(uint64(b))
	}
	return t.hash
}

func encodeChain(chain uint64) []byte { return binary.LittleEndian.AppendUint64(nil, chain) }

func decodeChain(data []byte) uint64 { return binary.LittleEndian.Uint64(data) }

func (m *machine) snapshot(term uint64) *raftpb.Snapshot {
	return &raftpb.Snapshot{
		Data:     encodeChain(m.chain),
		Metadata: &raftpb.SnapshotMetadata{Index: new(m.applied), Term: new(term), ConfState: proto.CloneOf(m.conf)},
	}
}

func (m *machine) restore(snap *raftpb.Snapshot) {
	meta := snap.GetMetadata()
	*m = machine{applied: meta.GetIndex(), conf: meta.GetConfState()}
	if m.applied > 0 {
		m.chain = decodeChain(snap.GetData())
	}
}

// confChange is the change in an entry, nil if there is none.
func confChange(e *raftpb.Entry) raftpb.ConfChangeI {
	switch e.GetType() {
	case raftpb.EntryConfChange:
		v1 := &raftpb.ConfChange{}
		must(proto.Unmarshal(e.GetData(), v1))
		return v1
	case raftpb.EntryConfChangeV2:
		v2 := &raftpb.ConfChangeV2{}
		must(proto.Unmarshal(e.GetData(), v2))
		return v2
	default:
		return nil
	}
}
