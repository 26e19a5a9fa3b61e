package kvnode

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// maxHeld bounds the followers' configuration changes that a leader holds.
const maxHeld = 64

// hold keeps a follower's configuration change until those before it are applied:
// raft would drop it without a word, and whoever waits for it would hear nothing
// before its time is over. The follower cannot do that, for it does not know what the
// leader has. It reports whether it has kept m.
func (n *Node) hold(m *raftpb.Message) bool {
	l := &n.loop
	if m.GetType() != raftpb.MsgProp || l.role != raft.StateLeader || len(l.held) >= maxHeld {
		return false
	}
	if !slices.ContainsFunc(m.GetEntries(), isConfChange) {
		return false
	}
	l.held = append(l.held, m)
	return true
}

// stepHeld steps what was held, one after another. Who no longer leads forgets it: the
// followers know that the leader has changed.
func (n *Node) stepHeld() {
	l := &n.loop
	if l.role != raft.StateLeader {
		l.held = nil
	}
	for len(l.held) > 0 && l.confIndex <= l.raw.BasicStatus().Applied {
		m := l.held[0]
		l.held = l.held[1:]
		_ = l.raw.Step(m)
		n.handleReadys() // confIndex
	}
}
