package leasetest

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// restore replaces the state machine by a snapshot that raft has accepted.
func (n *Node) restore(snap *raftpb.Snapshot) {
	index := snap.GetMetadata().GetIndex()
	if raft.IsEmptySnap(snap) || index < n.Applied() || (index == n.Applied() && !n.machine.Durable()) {
		return
	}
	if !n.machine.Durable() {
		must(n.machine.Restore(snap))
	}
	n.conf, n.made = snap.GetMetadata().GetConfState(), max(n.made, index)
	n.applied(index)
	if n.lease != nil && n.chosen() == TellsConfTwice {
		n.lease.ApplyConfState(index-1, n.began) // a change that the snapshot covers
	}
}

func (n *Node) apply(entries []*raftpb.Entry) {
	for _, e := range entries {
		if e.GetIndex() <= n.Applied() {
			n.applyAgain(e)
			continue
		}
		if e.GetIndex() <= n.superseded {
			continue
		}
		made := n.machine.Apply(e, n.applyConf(e))
		if n.cluster.OnApply != nil {
			n.cluster.OnApply(n, e, made)
		}
		if done := n.writes[made.Write]; done != nil {
			delete(n.writes, made.Write)
			done(made.Version)
		}
	}
	if len(entries) > 0 {
		n.applied(n.reached(entries))
	}
}

// applyAgain handles an entry that the machine has applied already: a snapshot was faster,
// or was newer than the commit index of the log at the start.
func (n *Node) applyAgain(e *raftpb.Entry) {
	if !n.machine.Durable() {
		return
	}
	n.machine.Apply(e, nil)
	if e.GetType() == raftpb.EntryNormal {
		return
	}
	n.made = max(n.made, e.GetIndex())
	if n.lease != nil && e.GetIndex() > n.confIndex {
		n.lease.ApplyConfState(e.GetIndex(), n.conf)
	}
}

// reached returns the applied index as raft knows it. A durable machine may be ahead of it.
func (n *Node) reached(entries []*raftpb.Entry) uint64 {
	if !n.machine.Durable() {
		return n.Applied()
	}
	return min(n.Applied(), entries[len(entries)-1].GetIndex())
}

func (n *Node) applied(index uint64) {
	if n.lease != nil {
		n.lease.Applied(index)
	}
	n.stockApplied()
}

// applyConf applies a configuration change to raft and then to the Lease. It returns the
// new configuration, or nil for other entries.
func (n *Node) applyConf(e *raftpb.Entry) *raftpb.ConfState {
	var cc raftpb.ConfChangeI
	switch e.GetType() {
	case raftpb.EntryConfChange:
		v1 := &raftpb.ConfChange{}
		must(proto.Unmarshal(e.GetData(), v1))
		cc = v1
	case raftpb.EntryConfChangeV2:
		v2 := &raftpb.ConfChangeV2{}
		must(proto.Unmarshal(e.GetData(), v2))
		cc = v2
	default:
		return nil
	}
	made, before := n.made, n.conf
	n.conf, n.made = n.raw.ApplyConfChange(cc), e.GetIndex()
	n.tellConf(made, before)
	return n.conf
}
