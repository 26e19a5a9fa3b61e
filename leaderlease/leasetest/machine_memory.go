package leasetest

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// memoryMachine is a Machine that is not durable. For each key it holds the log
// index of the newest write, which serves as the key's version.
type memoryMachine struct {
	applied, term uint64
	conf          *raftpb.ConfState
	versions      map[uint64]uint64
}

// NewMemoryMachine returns the Machine of a node that has never run. It keeps
// nothing but the versions of its keys.
func NewMemoryMachine() Machine { return &memoryMachine{versions: make(map[uint64]uint64)} }

// Command implements Machine.
func (m *memoryMachine) Command(key, write uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, key)
	return binary.BigEndian.AppendUint64(b, write)
}

// Apply implements Machine.
func (m *memoryMachine) Apply(e *raftpb.Entry, conf *raftpb.ConfState) Outcome {
	if e.GetIndex() <= m.applied {
		return Outcome{}
	}
	m.applied, m.term = e.GetIndex(), e.GetTerm()
	data := e.GetData()
	if conf != nil {
		m.conf = conf
		return Outcome{}
	}
	if len(data) != 16 {
		return Outcome{}
	}
	m.versions[binary.BigEndian.Uint64(data)] = m.applied
	return Outcome{Write: binary.BigEndian.Uint64(data[8:]), Version: m.applied}
}

// Applied implements Machine.
func (m *memoryMachine) Applied() uint64 { return m.applied }

// Conf implements Machine.
func (m *memoryMachine) Conf() *raftpb.ConfState { return m.conf }

// Read implements Machine.
func (m *memoryMachine) Read(key uint64) (version, newest uint64) { return m.versions[key], 0 }

// Hash implements Machine.
func (m *memoryMachine) Hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(m.encode())
	return h.Sum64()
}

// Durable implements Machine.
func (m *memoryMachine) Durable() bool { return false }

// Checkpoint implements Machine.
func (m *memoryMachine) Checkpoint(func(index uint64) error) error { return nil }

// Snapshot implements Machine.
func (m *memoryMachine) Snapshot() (*raftpb.Snapshot, error) {
	return &raftpb.Snapshot{
		Data:     m.encode(),
		Metadata: &raftpb.SnapshotMetadata{Index: new(m.applied), Term: new(m.term), ConfState: m.conf},
	}, nil
}

// Restore implements Machine.
func (m *memoryMachine) Restore(snap *raftpb.Snapshot) error {
	meta := snap.GetMetadata()
	m.applied, m.term, m.conf = meta.GetIndex(), meta.GetTerm(), meta.GetConfState()
	m.decode(snap.GetData())
	return nil
}

// Reopen implements Machine.
func (m *memoryMachine) Reopen(snap *raftpb.Snapshot) (Machine, error) {
	next := NewMemoryMachine()
	return next, next.Restore(snap)
}

// encode and decode carry the versions in a snapshot, behind the applied index.
func (m *memoryMachine) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, m.applied)
	for _, key := range slices.Sorted(maps.Keys(m.versions)) {
		b = binary.BigEndian.AppendUint64(b, key)
		b = binary.BigEndian.AppendUint64(b, m.versions[key])
	}
	return b
}

func (m *memoryMachine) decode(b []byte) {
	clear(m.versions)
	if len(b) < 8 {
		return
	}
	for b = b[8:]; len(b) >= 16; b = b[16:] {
		m.versions[binary.BigEndian.Uint64(b)] = binary.BigEndian.Uint64(b[8:])
	}
}
