package leasetest

import "go.etcd.io/raft/v3/raftpb"

// knowChanges runs apply once the log knows for good that the changes of
// membership in entries are committed. Whoever sees such a change relies on it,
// and switches a member off that was removed; if a crash let the others forget
// it, they would wait for that member's vote.
func (n *Node) knowChanges(entries []*raftpb.Entry, apply func()) {
	index := newestChange(entries)
	if index == 0 || n.opts.ForgetsChanges || n.committed(index) == nil {
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
