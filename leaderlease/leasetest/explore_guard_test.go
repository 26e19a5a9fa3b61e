package leasetest

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// guards judges V3 and V4 by themselves, since one stands in for the other: a node that
// is bound lets nothing in that helps to elect anybody, and nothing out.
func (p *play) guards() {
	ready, admit := p.c.OnReady, p.c.OnAdmit
	p.c.OnAdmit = func(n *Node, m *raftpb.Message) {
		admit(n, m)
		if asksForHelp(m) || grants(m) {
			p.checkGuard(n, m, "reaches raft")
		}
	}
	p.c.OnReady = func(n *Node, msgs []*raftpb.Message) {
		ready(n, msgs)
		for _, m := range msgs {
			if n.helps(m) {
				p.checkGuard(n, m, "leaves")
			}
		}
	}
}

func (p *play) checkGuard(n *Node, m *raftpb.Message, what string) {
	switch n.mistake() {
	case NoMistake, SendsCopy, TellsNoConf:
		if n.Bound() {
			p.fail("%v %s at node %d, which is bound", m.GetType(), what, n.ID)
		}
	}
}

func asksForHelp(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow:
		return true
	default:
		return false
	}
}

func grants(m *raftpb.Message) bool {
	return !m.GetReject() && (m.GetType() == raftpb.MsgVoteResp || m.GetType() == raftpb.MsgPreVoteResp)
}

// helps reports whether m, or what the storage thread answers for it, helps to elect
// anybody. A granted pre-vote does where it is the node's own.
func (n *Node) helps(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return true
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		return grants(m) && (m.GetType() == raftpb.MsgVoteResp || m.GetTo() == n.ID)
	case raftpb.MsgStorageAppend:
		return slices.ContainsFunc(m.GetResponses(), n.helps)
	}
	return false
}
