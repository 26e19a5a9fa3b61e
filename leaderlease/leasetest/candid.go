package leasetest

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// tellCommit adds a commit hint to m, an answer to a candidate: the entry at Commit, of the
// term RejectHint, is committed. The library does the same with the same fields; this code
// is for nodes without it.
func (n *Node) tellCommit(m *raftpb.Message) {
	switch t := m.GetType(); {
	case t != raftpb.MsgVoteResp && t != raftpb.MsgPreVoteResp:
	case n.Options.NoCommitHints:
		m.Commit, m.RejectHint = nil, nil
	case n.lease == nil || n.mistake() != NoMistake:
		// Applied entries are in the log on disk.
		index := n.raw.BasicStatus().Applied
		if term, err := n.disk.Term(index); err == nil && term > 0 {
			m.Commit, m.RejectHint = new(index), new(term)
		}
	}
}

// learnCommit applies a commit hint in m if it covers a change of membership.
func (n *Node) learnCommit(m *raftpb.Message) {
	if n.lease != nil {
		n.lease.LearnCommit(n.raw, m)
		return
	}
	if t := m.GetType(); t != raftpb.MsgVoteResp && t != raftpb.MsgPreVoteResp {
		return
	}
	s, index := n.raw.BasicStatus(), m.GetCommit()
	if s.RaftState == raft.StateLeader || s.Lead != raft.None || index <= s.GetCommit() {
		return
	}
	if term, err := n.disk.Term(index); err != nil || term != m.GetRejectHint() {
		return
	}
	entries, err := n.disk.Entries(s.GetCommit()+1, index+1, noLimit)
	if err != nil || newestChange(entries) == 0 {
		return
	}
	must(n.raw.Step(&raftpb.Message{ // raft compares index and term with its own log
		Type: raftpb.MsgApp.Enum(), From: new(m.GetFrom()), To: new(n.ID), Term: new(s.GetTerm()),
		Index: new(index), LogTerm: new(m.GetRejectHint()), Commit: new(index),
	}))
	must(n.raw.ForgetLeader())
}

const noLimit = 1 << 40
