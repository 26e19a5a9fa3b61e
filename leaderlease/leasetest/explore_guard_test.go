package leasetest

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// guards checks single rules, where another rule would hide a violation. V3 and V4 stand in
// for each other: a bound node lets no message in, and none out, that helps an election.
func (p *play) guards() {
	ready, admit, applied, deliver := p.c.OnReady, p.c.OnAdmit, p.c.OnApply, p.c.OnDeliver
	p.c.OnApply = func(n *Node, e *raftpb.Entry, made Outcome) {
		applied(n, e, made)
		p.members()
	}
	p.c.OnDeliver = func(n *Node, m *raftpb.Message) {
		deliver(n, m)
		p.members()
	}
	p.c.OnAdmit = func(n *Node, m *raftpb.Message) {
		admit(n, m)
		if asksForHelp(m) || grants(m) {
			p.checkGuard(n, m, "reaches raft")
		}
	}
	p.c.OnTick = p.ticks
	p.c.OnReady = func(n *Node, msgs []*raftpb.Message) {
		ready(n, msgs)
		p.members()
		for _, m := range msgs {
			if n.helps(m) {
				p.checkGuard(n, m, "leaves")
			}
		}
	}
}

func (p *play) checkGuard(n *Node, m *raftpb.Message, what string) {
	if m := n.mistake(); m != NoMistake && m != SendsCopy && !m.isAboutConf() {
		return
	}
	if n.Bound() {
		p.fail("%v %s at node %d, which is bound", m.GetType(), what, n.ID)
	}
}

// ticks checks the half of V5 that WouldBlock stands in for: raft does not tick if the tick
// would elect a bound node.
func (p *play) ticks(n *Node) {
	alone := len(n.conf.GetVoters()) == 1 && n.conf.GetVoters()[0] == n.ID && len(n.conf.GetVotersOutgoing()) == 0
	if alone && n.mistake() == NoMistake && n.role != raft.StateLeader && n.Bound() {
		p.fail("raft ticks at node %d, which is bound and the only voter", n.ID)
	}
}

// members checks L4 and L5 alone, because raft's own rules stand in for them. A node that
// has applied its own removal has no lease, and no node has one between the Ready with a
// change and ApplyConfState.
func (p *play) members() {
	for _, n := range p.c.nodes {
		if !n.up || n.paused || !n.Valid() {
			continue
		}
		if !slices.Contains(n.conf.GetVoters(), n.ID) && !slices.Contains(n.conf.GetVotersOutgoing(), n.ID) {
			p.fail("node %d holds a lease, and is no voter", n.ID)
		}
		// Where the next entry is a change, a call for that entry is taken for the change's result.
		if n.handed > n.made && n.handed > n.confIndex && n.mistake() != RepeatsConf {
			p.fail("node %d holds a lease, and has not made the change at %d", n.ID, n.handed)
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

// helps reports whether m, or a response of the storage thread to it, helps an election. A
// granted pre-vote helps only if it is the node's own.
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
