package raftsim

import (
	"go.etcd.io/raft/v3/raftpb"
)

// forgettable says which data in a message its sender would lose in a crash now.
type forgettable struct{ term, entry, commit bool }

func (f forgettable) any() bool { return f.term || f.entry || f.commit }

// forgettable compares a message that leaves with the durable state of its sender.
func (n *node) forgettable(m *raftpb.Message) forgettable {
	var f forgettable
	d := n.disk
	switch m.GetType() {
	case raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		// Their term is one to come, or the one asked about.
	default:
		f.term = m.GetTerm() > d.hard.term
	}
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		// Later, entries of that term may have replaced them rightly.
		f.entry = d.hard.term < m.GetTerm() && !d.has(m.GetIndex(), m.GetLogTerm())
	case raftpb.MsgApp:
		f.entry = !d.has(m.GetIndex(), m.GetLogTerm())
		for _, e := range m.GetEntries() {
			f.entry = f.entry || !d.has(e.GetIndex(), e.GetTerm())
		}
		f.commit = m.GetCommit() > d.hard.commit
	case raftpb.MsgAppResp:
		f.entry = !m.GetReject() && m.GetIndex() > d.last()
	case raftpb.MsgHeartbeat:
		f.commit = m.GetCommit() > d.hard.commit
	case raftpb.MsgReadIndexResp:
		f.commit = m.GetIndex() > d.hard.commit
	case raftpb.MsgSnap:
		f.commit = m.GetSnapshot().GetMetadata().GetIndex() > d.hard.commit
	default:
	}
	return f
}

// leaves counts a message that leaves, and judges raft's word.
func (j *judge) leaves(n *node, m *raftpb.Message) {
	f := n.forgettable(m)
	c := &j.s.res.Said[m.GetType()]
	c.Sent++
	c.Term += bit(f.term)
	c.Entry += bit(f.entry)
	c.Commit += bit(f.commit)
	j.word(n, m)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
