package leasetest

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
)

// errNotCommitted means that a checkpoint would be ahead of the durable commit index.
var errNotCommitted = errors.New("leasetest: not committed on disk")

// Compact has the machine make a checkpoint and drops the log before it. The log
// of a durable machine follows a tick later, so that a crash may come between
// the two; it stays as it is if the checkpoint fails.
func (n *Node) Compact() {
	if !n.up || n.Applied() <= n.first() || n.machine.Checkpoint(n.committed) != nil {
		return
	}
	snap, err := n.machine.Snapshot()
	must(err)
	if n.machine.Durable() {
		snap = n.behind(n.forLog(snap))
		n.later(n.cluster.opts.TickInterval, func() { n.onWriteDone(func() { n.compactLog(snap) }) })
		return
	}
	if n.mayCompact(snap.GetMetadata().GetIndex()) {
		must(n.disk.Compact(snap))
	}
}

// behind returns the checkpoint that the log may begin with now that newest is
// durable: that one, or the one before, since logs keep more than they must.
func (n *Node) behind(newest *raftpb.Snapshot) *raftpb.Snapshot {
	before := n.newest
	n.newest = newest
	if before != nil && newest.GetMetadata().GetIndex()%2 == 0 {
		return before
	}
	return newest
}

// compactLog drops the log before a durable checkpoint, unless the log has a
// newer snapshot meanwhile.
func (n *Node) compactLog(snap *raftpb.Snapshot) {
	if index := snap.GetMetadata().GetIndex(); index > n.first() && n.mayCompact(index) {
		must(n.disk.Compact(snap))
	}
}

// forLog returns the part of a snapshot that the log stores.
func (n *Node) forLog(snap *raftpb.Snapshot) *raftpb.Snapshot {
	if !n.machine.Durable() || raft.IsEmptySnap(snap) {
		return snap
	}
	return &raftpb.Snapshot{Metadata: snap.GetMetadata()}
}

// flusher is a Disk that does not sync a write with only a commit index.
type flusher interface{ Flush() error }

// committed returns nil if the durable commit index has reached index. It then allows the
// machine to restart with its state up to index.
func (n *Node) committed(index uint64) error {
	hard, _, err := n.disk.InitialState()
	if err != nil {
		return err
	}
	if hard.GetCommit() < index {
		return fmt.Errorf("%w: index %d, the commit index is %d", errNotCommitted, index, hard.GetCommit())
	}
	if f, ok := n.disk.(flusher); ok {
		if err := f.Flush(); err != nil {
			return err
		}
	}
	n.allowed = max(n.allowed, index)
	n.known = max(n.known, index)
	return nil
}

// install restores a durable machine from the snapshot of a write, before the log begins with
// that snapshot. After that, the machine could not replay the log from an older state.
func (n *Node) install(snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	if !n.machine.Durable() || raft.IsEmptySnap(snap) || index <= n.Applied() {
		return nil
	}
	n.allowed = max(n.allowed, index)
	return n.machine.Restore(snap)
}

// applyFrom returns raft's Applied for a process that starts. The machine may be ahead of the
// commit index of the log, if the last process died between the snapshot of the machine and that
// of the log. Every second process applies the whole log again, so that the machine often has to
// skip applied entries.
func (n *Node) applyFrom() uint64 {
	applied := n.Applied()
	if !n.machine.Durable() {
		return applied
	}
	hard, _, err := n.disk.InitialState()
	must(err)
	switch first := n.first(); {
	case applied+1 < first:
		panic(fmt.Sprintf("node %d is back at index %d, but its log begins with %d", n.ID, applied, first))
	case applied > n.allowed:
		panic(fmt.Sprintf("node %d is back at index %d, but was allowed to keep %d only", n.ID, applied, n.allowed))
	case hard.GetCommit() < n.known:
		panic(fmt.Sprintf("node %d has forgotten that %d is committed: its commit index is %d", n.ID, n.known, hard.GetCommit()))
	}
	if n.Process()%2 == 0 {
		return n.first() - 1
	}
	return min(applied, hard.GetCommit())
}

// recoverCommit returns s with the commit index that the log proves. Unless the node
// omits DurableConf, it writes that commit index to the disk.
func (n *Node) recoverCommit(s raft.Storage) raft.Storage {
	n.losses.recovered = 0
	if n.Options.Without.RecoverCommit {
		return s
	}
	stored, _, err := n.disk.InitialState()
	must(err)
	hard, _, err := leaderlease.RecoverCommit(n.disk).InitialState()
	must(err)
	if hard.GetCommit() > stored.GetCommit() {
		n.losses.recovered = hard.GetCommit()
		if !n.Options.Without.DurableConf {
			must(n.disk.Save(nil, hard, nil))
		}
	}
	return leaderlease.RecoverCommit(s)
}

// configOfLease returns the raft configuration for the Lease. Without RecoverCommit its Storage
// hides the changes in the log: otherwise the Lease would refuse the commit index of the hard
// state.
func (n *Node) configOfLease(rc *raft.Config) *raft.Config {
	if !n.Options.Without.RecoverCommit {
		return rc
	}
	c := *rc
	c.Storage = blind{rc.Storage}
	return &c
}

// blind is a Storage that shows every entry as a normal one.
type blind struct{ raft.Storage }

// Entries implements raft.Storage.
func (b blind) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	entries, err := b.Storage.Entries(lo, hi, maxSize)
	normal := make([]*raftpb.Entry, len(entries))
	for i, e := range entries {
		normal[i] = &raftpb.Entry{Term: e.Term, Index: e.Index, Data: e.GetData()}
	}
	return normal, err
}

// storage is the raft.Storage of a node's disk and machine.
type storage struct {
	Disk
	n *Node
}

// InitialState implements raft.Storage. A durable machine does not apply entries again, so
// the configuration is the machine's.
func (s storage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hard, conf, err := s.Disk.InitialState()
	if err == nil && s.n.machine.Durable() {
		conf = raftpb.EnsureConfState(s.n.conf)
	}
	return hard, conf, err
}

// Snapshot implements raft.Storage. Its configuration is the present one: an
// older snapshot may be from before its receiver became a member, and raft
// refuses those.
func (s storage) Snapshot() (*raftpb.Snapshot, error) {
	m := s.n.machine
	if !m.Durable() {
		if m.Applied() < s.n.first() {
			return s.Disk.Snapshot()
		}
		return m.Snapshot()
	}
	snap, err := m.Snapshot()
	if err == nil && proto.Equal(snap.GetMetadata().GetConfState(), s.n.conf) {
		return snap, nil
	}
	if m.Checkpoint(s.n.committed) != nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return m.Snapshot()
}
