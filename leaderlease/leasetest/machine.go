package leasetest

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Machine is the replicated state machine of a node, with its own durable state if it has
// any. The node makes one call at a time.
//
// There are two kinds. A machine that is not durable lives in memory only: the
// snapshot that the log begins with carries its state. A durable one keeps
// checkpoints by itself, apart from the log: after a crash it is back at the
// newest of them, at or behind the end of what the log knows to be committed,
// and the log is replayed from there. The log is never compacted beyond it.
type Machine interface {
	// Command returns the data of an entry by which write, which is unique and
	// above 0, gives key, which is above 0, a new version.
	Command(key, write uint64) []byte
	// Apply applies an entry; conf is what a configuration change leads to, nil
	// for all other entries. An entry at or below Applied changes nothing.
	Apply(e *raftpb.Entry, conf *raftpb.ConfState) Outcome
	// Applied returns the index of the newest entry applied, Conf the
	// configuration as of it.
	Applied() uint64
	Conf() *raftpb.ConfState
	// Read returns the version of key, 0 if it has none, and the newest version
	// of any key, as of one moment. The second is 0 in a machine that does not
	// tell its clients.
	Read(key uint64) (version, newest uint64)
	// Hash is equal on machines that are equal.
	Hash() uint64

	// Durable says which kind it is.
	Durable() bool
	// Checkpoint makes the state as of now durable. Before that, it gives its
	// index to committed, and leaves everything as it is if that fails: the log
	// must know it to be committed. A machine that is not durable does nothing.
	Checkpoint(committed func(index uint64) error) error
	// Snapshot returns the newest checkpoint, for a peer; the state as of now if
	// the machine is not durable.
	Snapshot() (*raftpb.Snapshot, error)
	// Restore replaces the state by a peer's Snapshot, as a whole or not at all,
	// also if the process dies meanwhile. A durable machine is restored before
	// the log begins with the snapshot, another one after that.
	Restore(snap *raftpb.Snapshot) error
	// Reopen returns the machine as a new process finds it, the first one or
	// one after a crash. snap is what the log begins with.
	Reopen(snap *raftpb.Snapshot) (Machine, error)
}

// Outcome is the result of applying an entry.
type Outcome struct {
	// Write is the write that the entry carries and that took effect, 0 if none.
	// Version is what it gave its key: it rises with each write to any key.
	Write, Version uint64
	// Sum stands for everything else that the machine answers. Like the rest, it
	// is the same on every node, and again after a crash.
	Sum uint64
}

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

// durableMachine is a Machine that survives its process, and knows which changes of
// membership it has applied.
type durableMachine struct {
	memoryMachine
	// confIndex is the index of the newest change in conf.
	confIndex uint64
	// kept is the newest checkpoint, keptIndex its confIndex.
	kept      *raftpb.Snapshot
	keptIndex uint64
}

func newDurableMachine(conf *raftpb.ConfState) Machine {
	m := &durableMachine{memoryMachine: memoryMachine{conf: conf, versions: make(map[uint64]uint64)}}
	if conf != nil {
		m.applied, m.term = 1, 1
	}
	m.kept = m.now()
	return m
}

// confIndexed is a Machine that knows which changes it has applied.
type confIndexed interface{ changesUpTo() uint64 }

func (m *durableMachine) changesUpTo() uint64 { return m.confIndex }

func (m *durableMachine) now() *raftpb.Snapshot {
	snap, err := m.memoryMachine.Snapshot()
	must(err)
	return proto.CloneOf(snap)
}

// Apply implements Machine.
func (m *durableMachine) Apply(e *raftpb.Entry, conf *raftpb.ConfState) Outcome {
	if conf != nil && e.GetIndex() > m.applied {
		m.confIndex = e.GetIndex()
	}
	return m.memoryMachine.Apply(e, conf)
}

// Durable implements Machine.
func (m *durableMachine) Durable() bool { return true }

// Checkpoint implements Machine.
func (m *durableMachine) Checkpoint(committed func(index uint64) error) error {
	if err := committed(m.applied); err != nil {
		return err
	}
	m.kept, m.keptIndex = m.now(), m.confIndex
	return nil
}

// Snapshot implements Machine.
func (m *durableMachine) Snapshot() (*raftpb.Snapshot, error) { return m.kept, nil }

// Restore implements Machine. A snapshot has all changes up to its index.
func (m *durableMachine) Restore(snap *raftpb.Snapshot) error {
	m.kept, m.keptIndex = snap, snap.GetMetadata().GetIndex()
	m.confIndex = m.keptIndex
	return m.memoryMachine.Restore(snap)
}

// Reopen implements Machine.
func (m *durableMachine) Reopen(*raftpb.Snapshot) (Machine, error) {
	next := &durableMachine{memoryMachine: memoryMachine{versions: make(map[uint64]uint64)}, kept: m.kept, keptIndex: m.keptIndex, confIndex: m.keptIndex}
	return next, next.memoryMachine.Restore(m.kept)
}
