package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// meta is the part of a checkpoint that is not in records.
type meta struct {
	ClusterVersion int64 `json:"Format"` // its former name, which stays on disk
	Index          uint64
	Term           uint64
	ConfState      []byte `json:",omitempty"` // raftpb.ConfState
	Revision       int64
	Compacted      int64
	Alarms         []alarm  `json:",omitempty"`
	Members        []Member `json:",omitempty"` // in the order of IDs
	Removed        []uint64 `json:",omitempty"`
	// Records is the number of records, and Sum the sum of their checksums. They reveal missing
	// records.
	Records int64
	Sum     uint64
}

type alarm struct {
	Member uint64
	Type   int32
}

// capture returns the meta value of the state, without ConfState, Records and Sum. The caller holds
// the apply lock, so all fields belong to one index.
func (st *state) capture() meta {
	m := meta{
		ClusterVersion: st.clusterVersion.Load(), Index: st.applied.Load(), Term: st.term,
		Revision: st.revision.Load(), Compacted: st.compacted.Load(),
	}
	members := st.members.Load()
	for _, id := range slices.Sorted(maps.Keys(members.ByID)) {
		m.Members = append(m.Members, members.ByID[id])
	}
	m.Removed = slices.Sorted(maps.Keys(members.Removed))
	for _, a := range *st.alarms.Load() {
		m.Alarms = append(m.Alarms, alarm{a.GetMemberID(), int32(a.GetAlarm())})
	}
	return m
}

// restore fills an empty state that has no readers yet. conf is m.ConfState, decoded.
func (m *meta) restore(st *state, conf *raftpb.ConfState) {
	st.term, st.conf = m.Term, conf
	st.clusterVersion.Store(m.ClusterVersion)
	st.revision.Store(m.Revision)
	st.compacted.Store(m.Compacted)
	st.applied.Store(m.Index)
	st.sealedIndex, st.sealedRevision = m.Index, m.Revision
	members := &Members{ByID: map[uint64]Member{}, Removed: map[uint64]bool{}}
	for _, one := range m.Members {
		members.ByID[one.ID] = one
	}
	for _, id := range m.Removed {
		members.Removed[id] = true
	}
	st.members.Store(members)
	alarms := make([]*pb.AlarmMember, 0, len(m.Alarms))
	for _, a := range m.Alarms {
		alarms = append(alarms, &pb.AlarmMember{MemberID: a.Member, Alarm: pb.AlarmType(a.Type)})
	}
	slices.SortFunc(alarms, compareAlarms)
	st.alarms.Store(&alarms)
}

func (m *meta) checkpoint() (Checkpoint, error) {
	c := Checkpoint{Index: m.Index, Term: m.Term, Revision: m.Revision}
	if m.ConfState == nil {
		return c, nil
	}
	c.ConfState = &raftpb.ConfState{}
	if err := proto.Unmarshal(m.ConfState, c.ConfState); err != nil {
		return Checkpoint{}, fmt.Errorf("%w: configuration: %w", ErrDamaged, err)
	}
	return c, nil
}

// save writes m as the meta value of tx: a CRC-32C, then JSON.
func (m *meta) save(tx Tx) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode meta: %w", err)
	}
	sum := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(data)), crc32.Checksum(data, castagnoli))
	return tx.SetMeta(append(sum, data...))
}

// decodeMeta is the reverse of save. Without data, before the first checkpoint, it returns the meta
// value of an empty state.
func decodeMeta(data []byte) (meta, error) {
	if data == nil {
		return meta{ClusterVersion: ClusterVersionFirst, Revision: 1, Compacted: -1}, nil
	}
	if len(data) < 4 || crc32.Checksum(data[4:], castagnoli) != binary.BigEndian.Uint32(data) {
		return meta{}, fmt.Errorf("%w: meta of %d bytes has a wrong checksum", ErrDamaged, len(data))
	}
	data = data[4:]
	// The cluster version comes first: with an unknown one the rest is not read.
	var v struct {
		ClusterVersion int64 `json:"Format"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return meta{}, fmt.Errorf("%w: meta: %w", ErrDamaged, err)
	}
	if v.ClusterVersion < ClusterVersionFirst || v.ClusterVersion > ClusterVersionNewest {
		return meta{}, fmt.Errorf("%w: it is %d, and this version reads %d to %d (use the version that wrote it)", ErrFormat, v.ClusterVersion, ClusterVersionFirst, ClusterVersionNewest)
	}
	var m meta
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&m); err != nil {
		return meta{}, fmt.Errorf("%w: meta: %w", ErrDamaged, err)
	}
	if m.Revision < 1 || m.Compacted < -1 || m.Compacted > m.Revision {
		return meta{}, fmt.Errorf("%w: revision %d, compacted %d", ErrDamaged, m.Revision, m.Compacted)
	}
	return m, nil
}
