package raftwal

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

var _ raft.Storage = (*Log)(nil)

// InitialState implements raft.Storage. The configuration is the snapshot's.
func (l *Log) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return nil, nil, ErrClosed
	}
	v := &l.mu.view
	conf := cloneConf(v.snap.GetMetadata().GetConfState())
	if v.hard == (hardState{}) {
		return nil, conf, nil
	}
	return v.hard.proto(), conf, nil
}

// Term implements raft.Storage.
func (l *Log) Term(i uint64) (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return 0, ErrClosed
	}
	return l.mu.view.term(i)
}

// LastIndex implements raft.Storage.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return 0, ErrClosed
	}
	return l.mu.view.last(), nil
}

// FirstIndex implements raft.Storage.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return 0, ErrClosed
	}
	return l.mu.view.base.index + 1, nil
}

// Snapshot implements raft.Storage. The data is what the snapshot was saved
// with; who keeps states elsewhere overrides this method.
func (l *Log) Snapshot() (*raftpb.Snapshot, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return nil, ErrClosed
	}
	return cloneSnapshot(l.mu.view.snap), nil
}

// Entries implements raft.Storage. Entries that are not in memory any more are
// read from the disk, and their CRCs checked. Where raft.MemoryStorage panics,
// for a range beyond the log, it returns raft.ErrUnavailable.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	r, err := l.plan(lo, hi, maxSize)
	if err != nil {
		return nil, err
	}
	return r.run()
}
