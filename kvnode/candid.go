package kvnode

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal"
)

// Raft counts votes by the configuration that a member has applied. A leader that
// applies its own removal is a follower at once, and nobody repeats that the change
// is committed if the word of it was lost. Those who are left then ask for the vote
// of the one that left, who refuses it if its log is longer: of two members, the
// other is never elected. So who is asked for a vote says how far it knows the log to
// be committed, as in raft-rs. Raft ignores that, and so do members of former versions.

func isVoteAnswer(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgVoteResp || m.GetType() == raftpb.MsgPreVoteResp
}

// tellCommit writes into answers to candidates that the entry at Commit, of the term
// RejectHint, is committed.
func (l *raftLoop) tellCommit(msgs []*raftpb.Message) {
	for _, m := range msgs {
		if !isVoteAnswer(m) || m.GetTo() == l.ID() {
			continue
		}
		// What is applied is in the log on disk. A commit index may be ahead of that.
		index := l.told.Load()
		if term, err := l.wal.Term(index); err == nil && term > 0 {
			m.Commit, m.RejectHint = new(index), new(term)
		}
	}
}

// learnCommit takes a member's word for what is committed, if the log here has the
// same entry, and with it all that leads to it. That stays true for ever, so it does
// not matter how late the word comes, nor who has crashed since.
//
// It is taken only if it tells of a change of membership: raft takes such word from
// a leader alone, so it is told that the sender leads, and made to forget it before
// anything else happens, but a candidate has lost its election by that.
func (l *raftLoop) learnCommit(m *raftpb.Message) {
	if !isVoteAnswer(m) {
		return
	}
	s, index := l.raw.BasicStatus(), m.GetCommit()
	if s.RaftState == raft.StateLeader || s.Lead != raft.None || index <= s.GetCommit() || index > l.last.Load() {
		return
	}
	if term, err := l.wal.Term(index); err != nil || term != m.GetRejectHint() {
		return
	}
	if firstChange(l.wal, s.GetCommit()+1, index+1) == 0 {
		return
	}
	l.log.Info("learned in an election that a change of membership is committed", "from", l.book.called(m.GetFrom()), "index", index)
	_ = l.raw.Step(&raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(m.GetFrom()), To: new(l.ID()), Term: new(s.GetTerm()), Commit: new(index),
	})
	_ = l.raw.ForgetLeader()
}

// changesPage is how much of the log is looked at together.
const changesPage = 1 << 20

// firstChange returns the index of the first change of membership among the entries of a log
// from lo up to hi, 0 if there is none, or the log cannot be read, which raft will say.
func firstChange(log *raftwal.Log, lo, hi uint64) uint64 {
	for lo < hi {
		entries, err := log.Entries(lo, hi, changesPage)
		if err != nil || len(entries) == 0 {
			return 0
		}
		if i := slices.IndexFunc(entries, isConfChange); i >= 0 {
			return entries[i].GetIndex()
		}
		lo += uint64(len(entries))
	}
	return 0
}
