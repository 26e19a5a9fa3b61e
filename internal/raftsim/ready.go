package raftsim

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// maxTurns is far above the number of Readys that one event can cause.
const maxTurns = 10_000

// pump handles everything that raft has ready.
func (n *node) pump() {
	for turns := 0; n.p != nil && n.p.raw.HasReady(); turns++ {
		if turns > maxTurns {
			panic(fmt.Sprintf("node %d has been ready %d times in no time", n.id, turns))
		}
		n.ready(n.p.raw.Ready())
	}
}

// ready handles a Ready as raft documents it: its messages leave in their order,
// and the MsgStorageAppend comes after those for the network.
func (n *node) ready(rd raft.Ready) {
	n.p.log.append(rd.Snapshot, rd.Entries)
	n.s.judge.ready(n, rd)
	if !raft.IsEmptySnap(rd.Snapshot) {
		n.p.restored = rd.Snapshot.GetMetadata().GetIndex()
	}
	n.s.readStates(n, rd.ReadStates)
	msgs := rd.Messages
	if n.s.cfg.Rules.HoldVotes {
		msgs = n.holdVotes(msgs)
	}
	var held []*raftpb.Message
	for _, m := range msgs {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			n.disk.push(&write{m: m})
		case m.GetTo() == raft.LocalApplyThread:
			n.p.applies = append(n.p.applies, m)
			n.applyNext()
		case n.holdsAppend(m):
			held = append(held, m)
		default:
			n.s.net.send(n, m)
		}
	}
	if len(held) > 0 {
		n.s.res.Count.HeldAppends += len(held)
		n.disk.push(&write{done: func() { n.respond(held) }})
	}
}

// holdsAppend is the rule HoldAppends: while a change of configuration is under
// way, a leader's entries leave when they are durable.
func (n *node) holdsAppend(m *raftpb.Message) bool {
	if !n.s.cfg.Rules.HoldAppends || m.GetType() != raftpb.MsgApp || !n.changes() {
		return false
	}
	return n.forgettable(m).entry
}

// changes reports whether a change of configuration is under way, as far as n
// knows.
func (n *node) changes() bool {
	return len(n.p.machine.conf.GetVotersOutgoing()) > 0 || n.changePending()
}

// changePending reports whether the log has a change that is not applied.
func (n *node) changePending() bool {
	return n.p.log.firstConf(n.p.machine.applied, n.p.log.last()) > 0
}

// holdVotes is rule V9: a MsgVote leaves with the responses of its Ready's
// MsgStorageAppend. There is always one, since the term has changed.
func (n *node) holdVotes(msgs []*raftpb.Message) []*raftpb.Message {
	var votes, rest []*raftpb.Message
	var appends *raftpb.Message
	for _, m := range msgs {
		if m.GetType() == raftpb.MsgVote {
			votes = append(votes, m)
			continue
		}
		if m.GetTo() == raft.LocalAppendThread {
			appends = m
		}
		rest = append(rest, m)
	}
	if len(votes) == 0 {
		return msgs
	}
	if appends == nil {
		panic("MsgVote without MsgStorageAppend")
	}
	n.s.res.Count.HeldVotes += len(votes)
	appends.Responses = slices.Concat(votes, appends.GetResponses())
	return rest
}

// written is called when w is durable: its responses follow, in order, a moment
// later.
func (n *node) written(w *write) {
	if w.done != nil {
		w.done()
		return
	}
	if snap := w.m.GetSnapshot(); !raft.IsEmptySnap(snap) && snap.GetMetadata().GetIndex() > n.p.machine.applied {
		n.p.machine.restore(snap)
		n.s.judge.applied(n)
	}
	if len(w.m.GetResponses()) == 0 {
		return
	}
	n.disk.answers = append(n.disk.answers, w.m.GetResponses())
	n.later(soon(n.s.rng, n.s.w.disk/8), func() {
		answers := n.disk.answers[0]
		n.disk.answers = n.disk.answers[1:]
		n.respond(answers)
	})
}

func (n *node) respond(msgs []*raftpb.Message) {
	for _, m := range msgs {
		switch {
		case n.p == nil:
			return
		case m.GetTo() == n.id:
			n.judgeOwn(m)
			n.step(m)
		default:
			n.s.net.send(n, m)
		}
	}
}

// judgeOwn checks a member's responses to itself: a candidate's own vote and a leader's own
// append count like those of others.
func (n *node) judgeOwn(m *raftpb.Message) {
	switch m.GetType() {
	case raftpb.MsgVoteResp, raftpb.MsgAppResp:
		n.s.judge.word(n, m)
	case raftpb.MsgStorageAppendResp:
		if snap := m.GetSnapshot(); !raft.IsEmptySnap(snap) {
			n.p.told = max(n.p.told, snap.GetMetadata().GetIndex())
		}
	default:
	}
}
