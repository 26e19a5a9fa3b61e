package leasetest

import (
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

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
