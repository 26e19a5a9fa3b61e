package leaderlease

import (
	"context"
	"log/slog"
	"strconv"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// commitHint is a committed entry. It travels on answers to candidates, in the fields Commit and RejectHint,
// which raft does not use there.
//
// Raft counts votes by the configuration that a node has applied. A leader that applies its own
// removal becomes a follower at once. If the message with the new commit index is lost, no member
// repeats it. The remaining members then ask the removed one for its vote, and it rejects them if
// its log is longer: in a group of two the remaining member is then never elected. With the hint
// the candidate learns that the removal is committed.
type commitHint struct{ index, term uint64 }

// follow takes over the newest committed entry of rd.
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

// attachCommitLocked puts the hint on an answer to another member.
func (l *Lease) attachCommitLocked(m *raftpb.Message) {
	if h := l.mu.committed; h.term > 0 && m.GetTo() != l.id() {
		m.Commit, m.RejectHint = new(h.index), new(h.term)
	}
}

// RaiseCommit raises the commit index of node, a candidate, if m proves that a configuration change in node's log
// is committed. Only a voter's answer to a candidate proves this; RaiseCommit ignores other messages.
// Call it after Incoming and before node.Step(m), in the goroutine that uses node:
//
//	if lease.Incoming(m, leaderlease.ProcessID{}) {
//		lease.RaiseCommit(node, m)
//		node.Step(m)
//	}
//
// Without it, a group may never elect another leader after one that removed itself. The Node that Wrap,
// StartNode or RestartNode returns does the same in Step.
//
// The answer names a committed entry. It counts only if raft's own log has an entry with the same index and
// term. The entries before that are then the same as the sender's. A committed entry stays committed, so the
// answer may be late. Raft takes a commit index only from a leader. So RaiseCommit steps an append without
// entries in the name of the sender, and then makes raft forget that leader. This ends the candidate's election,
// so RaiseCommit reads Storage first and goes on only if a configuration change becomes committed.
func (l *Lease) RaiseCommit(node *raft.RawNode, m *raftpb.Message) {
	if !l.hasNewCommit(m) {
		return
	}
	s := node.BasicStatus()
	if appends := l.commitAppend(&s, m); appends != nil {
		_ = node.Step(appends)
		_ = node.ForgetLeader()
	}
}

// raiseCommit is RaiseCommit for a raft.Node. Its Ready may show the sender as leader for a moment, which costs
// at most a proposal or a read that is forwarded there.
func (n *node) raiseCommit(ctx context.Context, m *raftpb.Message) {
	if !n.lease.hasNewCommit(m) {
		return
	}
	s := n.Node.Status()
	if appends := n.lease.commitAppend(&s.BasicStatus, m); appends != nil {
		if n.Node.Step(ctx, appends) == nil {
			_ = n.Node.ForgetLeader(n.stopping) // even if ctx has ended meanwhile
		}
	}
}

// hasNewCommit reports whether m has a hint beyond the commit index that this node has published.
func (l *Lease) hasNewCommit(m *raftpb.Message) bool {
	return l != nil && isVoteAnswer(m) && m.GetCommit() > l.commit.Load()
}

// commitAppend returns the append by which raft in state s learns the commit index in m. It returns nil if no
// configuration change is committed by it.
//
// A heartbeat would not do: it has no term of the entry, so raft would take its own entry at that index for
// committed. Comparing with Storage alone would not do either, since raft's log differs from it during a write.
func (l *Lease) commitAppend(s *raft.BasicStatus, m *raftpb.Message) *raftpb.Message {
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
		if isChange(e) {
			change = e.GetIndex()
		}
		return change == 0
	})
	if err != nil || change == 0 {
		return nil // raft reports what is wrong with the log
	}
	l.mu.Lock()
	l.logLocked(slog.LevelInfo, "learned in an election that a configuration change is committed", "change", change, "commit", index, "from", strconv.FormatUint(m.GetFrom(), 16))
	l.mu.Unlock()
	return &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(m.GetFrom()), To: new(s.ID), Term: new(s.GetTerm()),
		Index: new(index), LogTerm: new(m.GetRejectHint()), Commit: new(index),
	}
}
