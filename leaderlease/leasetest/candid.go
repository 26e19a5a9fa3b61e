package leasetest

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Raft counts votes by the configuration that a node has applied. A leader that
// applies its own removal is a follower at once, and nobody repeats that the
// change is committed if the word of it was lost. Who remains then asks for the
// vote of the one that left, who refuses it if its log is longer: with two
// voters, nobody is ever elected. So nodes say in messages of elections how far
// they know the log to be committed, as raft-rs does. Raft itself ignores it.

// election lists the messages of an election.
var election = []raftpb.MessageType{raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp}

// tellCommit writes into a message of an election that the entry at Commit, of
// the term RejectHint, is committed.
func (n *Node) tellCommit(m *raftpb.Message) {
	if n.Options.TellsNobody || !slices.Contains(election, m.GetType()) {
		return
	}
	// What raft has been told is applied is in its log on disk. A machine may be
	// ahead of that, and a commit index, too, where the disk has another entry.
	index := n.raw.BasicStatus().Applied
	if term, err := n.disk.Term(index); err == nil && term > 0 {
		m.Commit, m.RejectHint = new(index), new(term)
	}
}

// learnCommit takes a node's word for what is committed, if the log here has
// the same entry and changes of membership that are not known to be committed
// lead to it. Raft takes such word from a leader only, so it is told that m's
// sender leads, and made to forget it before anything else happens.
func (n *Node) learnCommit(m *raftpb.Message) {
	index := m.GetCommit()
	if index == 0 || !slices.Contains(election, m.GetType()) {
		return
	}
	s := n.raw.BasicStatus()
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
	must(n.raw.Step(&raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(m.GetFrom()), To: new(n.ID), Term: new(s.GetTerm()), Commit: new(index),
	}))
	must(n.raw.ForgetLeader())
}

const noLimit = 1 << 40
