package leasetest

import "go.etcd.io/raft/v3/raftpb"

// knowChanges runs apply once the log knows for good that the changes of
// membership in entries are committed. Whoever sees such a change relies on it,
// and switches a member off that was removed; if a crash let the others forget
// it, they would wait for that member's vote.
func (n *Node) knowChanges(entries []*raftpb.Entry, apply func()) {
	index := newestChange(entries)
	if index == 0 || n.Options.ForgetsChanges || n.committed(index) == nil {
		apply()
		return
	}
	// The update that says so is still in the queue.
	n.appends.push(n, func(done func()) {
		done()
		n.later(0, func() {
			must(n.committed(index))
			apply()
		})
	})
}

// putsOff reports whether m has to wait: a snapshot while entries that raft has
// handed out are being applied. Raft takes its configuration at once and cannot
// be told that a change is an older one: it would make it again, or panic. With
// AsyncStorageWrites the node sees the snapshot first: see superseded.
func (n *Node) putsOff(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgSnap || n.Options.Async || !n.busy {
		return false
	}
	n.snapshots = append(n.snapshots, m)
	return true
}

// stepSnapshots steps what was put off.
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
