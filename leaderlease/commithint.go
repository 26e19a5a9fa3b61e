package leaderlease

import (
	"context"
	"log/slog"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// commitHint names an entry that is committed. It travels on answers to candidates, in the
// fields Commit and RejectHint, which raft does not use there.
//
// Raft counts votes by the configuration that a node has applied. A leader that applies its
// own removal is a follower at once, and no member repeats that the removal is committed if
// the message that says so is lost. The members that remain then ask the removed one for its
// vote, and it rejects them if its log is longer: of two members, the other is never
// elected. With the hint the candidate learns what it lacks.
type commitHint struct{ index, term uint64 }

// follow takes over what raft publishes as committed.
func (h *commitHint) follow(rd *raft.Ready) {
	if s := rd.Snapshot.GetMetadata(); s.GetIndex() > h.index {
		*h = commitHint{s.GetIndex(), s.GetTerm()}
	}
	if n := len(rd.CommittedEntries); n > 0 && rd.CommittedEntries[n-1].GetIndex() > h.index {
		e := rd.CommittedEntries[n-1]
		*h = commitHint{e.GetIndex(), e.GetTerm()}
	}
}

func isVoteAnswer(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgVoteResp || m.GetType() == raftpb.MsgPreVoteResp
}

// tellCommitLocked puts the hint on an answer to another member.
func (l *Lease) tellCommitLocked(m *raftpb.Message) {
	if h := l.mu.committed; h.term > 0 && m.GetTo() != l.id() {
		m.Commit, m.RejectHint = new(h.index), new(h.term)
	}
}

// LearnCommit lets node learn from m, an answer to a candidate that Incoming has let in, that
// a configuration change is committed, if the sender's Lease says so and node does not know it
// yet. Call it before node.Step(m), where node may be used; it does nothing with other
// messages:
//
//	if lease.Incoming(m, leaderlease.ProcessID{}) {
//		lease.LearnCommit(node, m)
//		node.Step(m)
//	}
//
// Without it a group that has lost the leader which removed itself may never have another
// one. The Node that Wrap, StartNode or RestartNode returns does the same in Step.
//
// The hint counts only if raft's own log has the very entry, index and term. The entries
// before it are then the sender's, too. What is committed stays so, so it does not matter how
// late the hint comes or which member has crashed since. Raft takes a commit index from a
// leader only. So LearnCommit steps an append without entries in the name of the sender, of
// which raft compares index and term with its log, and makes raft forget that leader before
// anything else happens. A candidate gives its election up by that, which is why LearnCommit
// does it for configuration changes only. It reads Storage to find these.
func (l *Lease) LearnCommit(node *raft.RawNode, m *raftpb.Message) {
	if !l.mayTeach(m) {
		return
	}
	s := node.BasicStatus()
	if appends := l.taught(&s, m); appends != nil {
		_ = node.Step(appends)
		_ = node.ForgetLeader()
	}
}

// learnCommit is LearnCommit for a raft.Node. Its Ready may show the sender as leader for a
// moment: that costs a proposal or a read that is forwarded there, and nothing else.
func (n *node) learnCommit(ctx context.Context, m *raftpb.Message) {
	if !n.lease.mayTeach(m) {
		return
	}
	s := n.Node.Status()
	if appends := n.lease.taught(&s.BasicStatus, m); appends != nil {
		if n.Node.Step(ctx, appends) == nil {
			_ = n.Node.ForgetLeader(n.stopping) // also if ctx has ended meanwhile
		}
	}
}

// mayTeach reports whether m has a hint of more than this node has published.
func (l *Lease) mayTeach(m *raftpb.Message) bool {
	return l != nil && isVoteAnswer(m) && m.GetCommit() > l.commit.Load()
}

// taught returns the append, without entries, by which raft, whose state is s, learns what m
// says is committed. It returns nil if m says nothing of use.
//
// A heartbeat would not do: it names no term, so raft would take whatever entry it has at that
// index for committed. Storage cannot be asked instead, since raft's log differs from it while a
// write is under way.
func (l *Lease) taught(s *raft.BasicStatus, m *raftpb.Message) *raftpb.Message {
	index := m.GetCommit()
	if s.RaftState == raft.StateLeader || s.Lead != raft.None || index <= s.GetCommit() {
		return nil
	}
	log := l.cfg.Raft.Storage
	if last, err := log.LastIndex(); err != nil || index > last {
		return nil
	}
	if term, err := log.Term(index); err != nil || term != m.GetRejectHint() {
		return nil
	}
	change := uint64(0)
	err := eachEntry(log, s.GetCommit()+1, index+1, func(e *raftpb.Entry) bool {
		if changesConf(e) {
			change = e.GetIndex()
		}
		return change == 0
	})
	if err != nil || change == 0 {
		return nil // raft says what is wrong with the log
	}
	l.mu.Lock()
	l.logLocked(slog.LevelInfo, "learned in an election that a configuration change is committed", "change", change, "commit", index, "from", m.GetFrom())
	l.mu.Unlock()
	return &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(m.GetFrom()), To: new(s.ID), Term: new(s.GetTerm()),
		Index: new(index), LogTerm: new(m.GetRejectHint()), Commit: new(index),
	}
}
