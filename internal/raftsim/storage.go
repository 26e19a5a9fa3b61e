package raftsim

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// storage is a disk as raft reads it.
type storage struct {
	*raft.MemoryStorage
	n *node
}

// InitialState implements raft.Storage.
func (s storage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	_, conf, err := s.MemoryStorage.InitialState()
	h := s.n.disk.hard
	if h == (hardState{}) {
		return nil, conf, err
	}
	return &raftpb.HardState{Term: new(h.term), Vote: new(h.vote), Commit: new(h.commit)}, conf, err
}

// Snapshot implements raft.Storage: what a leader sends is the present state of
// its machine, not its last checkpoint.
func (s storage) Snapshot() (*raftpb.Snapshot, error) {
	p := s.n.p
	term, err := s.Term(p.machine.applied)
	if err != nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return p.machine.snapshot(term), nil
}
