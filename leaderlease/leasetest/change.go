package leasetest

import "go.etcd.io/raft/v3/raftpb"

// knowChanges runs apply once the commit index of the changes of membership in entries is
// durable. An operator that sees such a change may switch off the removed member. If a crash
// then lost the commit index, the others would wait for that member's vote.
func (n *Node) knowChanges(entries []*raftpb.Entry, apply func()) {
	index := newestChange(entries)
	if index == 0 || n.Options.ForgetsChanges || n.committed(index) == nil {
		apply()
		return
	}
	// The write with that commit index is still in the queue.
	n.appends.push(n, func(done func()) {
		done()
		n.later(0, func() {
			must(n.committed(index))
			apply()
		})
	})
}

// putsOff reports whether m has to wait: m is a snapshot, and entries that raft has handed
// out are still being applied. Raft takes the configuration of the snapshot at once, and
// would apply an older change in those entries again, or panic. With AsyncStorageWrites the
// node sees the snapshot first: see superseded.
func (n *Node) putsOff(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgSnap || n.Options.Async || !n.busy {
		return false
	}
	n.snapshots = append(n.snapshots, m)
	return true
}

// stepSnapshots steps the snapshots that were put off.
func (n *Node) stepSnapshots() {
	late := n.snapshots
	n.snapshots = nil
	for _, m := range late {
		n.stepRaw(m)
	}
}

// newestChange returns the index of the last change of membership, 0 if there
// is none.
func newestChange(entries []*raftpb.Entry) (index uint64) {
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal {
			index = e.GetIndex()
		}
	}
	return index
}
