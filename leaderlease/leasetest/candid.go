package leasetest

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// tellCommit writes into m, an answer to a candidate, that the entry at Commit, of the term
// RejectHint, is committed. The library does that by itself; a node without it needs this
// code. Both use the same fields, so each understands the other.
func (n *Node) tellCommit(m *raftpb.Message) {
	switch t := m.GetType(); {
	case t != raftpb.MsgVoteResp && t != raftpb.MsgPreVoteResp:
	case n.Options.TellsNobody:
		m.Commit, m.RejectHint = nil, nil
	case n.lease == nil || n.mistake() != NoMistake:
		// What raft has been told is applied is in its log on disk.
		index := n.raw.BasicStatus().Applied
		if term, err := n.disk.Term(index); err == nil && term > 0 {
			m.Commit, m.RejectHint = new(index), new(term)
		}
	}
}

// learnCommit takes from m that a change of membership is committed.
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
