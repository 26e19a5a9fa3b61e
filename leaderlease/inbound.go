package leaderlease

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Incoming must be called for each message from a peer before raft steps it, and reports whether
// raft may step it. It makes promises (V1), counts grants (L2), withholds requests for votes, votes
// for this node and MsgTimeoutNow while this node is bound (V3), and answers the ReadIndex requests of
// followers from the lease. It does not change m, does not block, and may be called from any goroutine.
//
// from identifies the process that sent m, as named by the connection on which m arrived. The zero value
// means unknown, which is right for every embedder that does not call ProcessDied: a death voids only
// promises to a known process (V8). See ProcessID.
func (l *Lease) Incoming(m *raftpb.Message, from ProcessID) bool {
	if l == nil {
		return true
	}
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		l.promise(m, from)
	case raftpb.MsgHeartbeatResp:
		l.count(m)
	case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgTimeoutNow:
		return l.admit(m)
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		return l.mayWin(m)
	case raftpb.MsgReadIndex:
		return l.answerForwarded(m)
	case raftpb.MsgReadIndexResp:
		return l.takeAnswer(m)
	case raftpb.MsgStorageAppendResp:
		l.noteStored(m)
	case raftpb.MsgStorageApplyResp:
		l.noteAcknowledged(m)
	}
	return true
}

// promise answers a probe before raft steps the heartbeat (V1).
func (l *Lease) promise(m *raftpb.Message, from ProcessID) {
	p, err := probeOf(m)
	if err != nil {
		l.stats.countField(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.nowLocked()
	made := l.mu.guard.Promise(m.GetFrom(), m.GetTerm(), p, from, now)
	l.traceProbeLocked(leasetrace.KindPromise, m, m.GetFrom(), now, p, from, made)
	if made {
		l.stats.promises.Add(1)
		return
	}
	l.stats.refusedProbes.Add(1)
	l.saveLocked(now)
}

// count takes the grant of a heartbeat response (L2), which may renew the lease.
func (l *Lease) count(m *raftpb.Message) {
	g, err := grantOf(m)
	if err != nil {
		l.stats.countField(err)
		return
	}
	l.mu.Lock()
	now := l.nowLocked()
	renewed := l.mu.lease.Count(m.GetFrom(), m.GetTerm(), g, now)
	l.traceGrantLocked(leasetrace.KindCount, m, m.GetFrom(), now, g, renewed)
	if renewed {
		l.stats.renewals.Add(1)
	}
	done := l.publishLocked(now)
	l.mu.Unlock()
	done.report()
}

// admit withholds MsgVote, MsgPreVote and MsgTimeoutNow from raft while this node is bound, unless the
// leader has released it (V3, L6).
func (l *Lease) admit(m *raftpb.Message) bool {
	var rel *core.Release
	r, err := releaseOf(m)
	switch {
	case err == nil && releases(m, r):
		rel = &r
	case err == nil || !errors.Is(err, errNoField):
		l.stats.malformed.Add(1)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.nowLocked()
	may := l.mu.guard.Admit(rel, now) && !l.panicsLocked(m)
	l.traceMessageLocked(leasetrace.KindRequest, m, m.GetFrom(), now, rel, may)
	if !may {
		l.stats.withhold(m.GetType(), true)
	}
	return may
}

// panicsLocked reports whether raft would panic on m. A node that was bootstrapped from a snapshot and
// knows no term cannot reject a pre-vote (send in raft.go). It would reject m because the candidate's log
// is shorter, so withholding m costs no vote.
func (l *Lease) panicsLocked(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgPreVote || l.mu.term != 0 {
		return false
	}
	return m.GetLogTerm() < l.lastTermAtStart || (m.GetLogTerm() == l.lastTermAtStart && m.GetIndex() < l.lastAtStart)
}

// mayWin withholds votes for this node from raft while it is bound: it must not be elected (V3). A bound
// node asks for no vote, but it may have become bound after it asked, by a promise or a step of its clock.
func (l *Lease) mayWin(m *raftpb.Message) bool {
	if m.GetReject() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.nowLocked()
	bound := l.mu.guard.Bound(now)
	l.traceMessageLocked(leasetrace.KindVoteIn, m, m.GetFrom(), now, nil, !bound)
	if bound {
		l.stats.withhold(m.GetType(), true)
	}
	return !bound
}

// noteStored records that the storage thread has made a HardState durable. It runs only in loops that
// pass their local messages through Incoming, as Wrap does.
func (l *Lease) noteStored(m *raftpb.Message) {
	if raft.IsLocalMsgTarget(m.GetFrom()) {
		l.mu.Lock()
		l.mu.durable = true
		l.mu.Unlock()
	}
}

// answerForwarded answers a follower's MsgReadIndex from a valid lease. Without one raft makes a quorum
// round, if its answer would be right (mayAskLocked). A new leader keeps the request until the first
// commit of its term, as it keeps its own reads. A follower repeats a request that is dropped here.
func (l *Lease) answerForwarded(m *raftpb.Message) bool {
	quorum := wantsRound(m)
	if !quorum && l.cfg.Send != nil && m.GetFrom() != raft.None {
		if v, _, s := l.check(); s == core.Valid {
			l.stats.answered.Add(1)
			l.cfg.Send([]*raftpb.Message{l.readIndexResp(m, v.Term, l.commit.Load())})
			return false
		}
	}
	l.mu.Lock()
	may := l.mu.role != raft.StateLeader || l.mayAskLocked()
	keep := !may && l.mu.lease.Term() != 0 && l.mu.lease.IsVoter() && l.cfg.Send != nil && m.GetFrom() != raft.None
	l.mu.Unlock()
	if keep {
		l.start(&waiter{remote: true, needsRound: quorum, done: func(r ReadResult, err error) {
			if err == nil {
				l.cfg.Send([]*raftpb.Message{l.readIndexResp(m, r.Term, r.Index)})
			}
		}})
	}
	return may
}

// takeAnswer takes a leader's answer to this node's reads, and reports whether raft may step it. If the
// leader does not attest the answer, it runs without the library, and raft's own answer may be stale: the
// waiting reads fail. Reads that need a round also fail if the leader does not confirm one: it runs a
// version that answers them from its lease.
func (l *Lease) takeAnswer(m *raftpb.Message) bool {
	var asked uint64
	quorum, ours := false, false
	for _, e := range m.GetEntries() {
		if seq, q, mine := l.nonce.seq(e.GetData()); mine {
			asked, quorum, ours = seq, q, true
		}
	}
	byRound, err := answerOf(m)
	switch {
	case !ours:
		return true
	case err == nil && (byRound || !quorum):
		return !l.answerWaiting(m)
	case err != nil:
		l.stats.countField(err)
		l.refuseReads(fmt.Errorf("node %x does not attest its answer: %w", m.GetFrom(), err), everyone)
		return false
	default:
		why := fmt.Errorf("node %x does not confirm a quorum round: %w", m.GetFrom(), ErrLeaderTooOld)
		l.refuseReads(why, func(w *waiter) bool { return w.needsRound && w.round <= asked })
		return !l.answerWaiting(m) // it serves the other reads
	}
}

// answerWaiting answers the reads that an attested answer serves, and reports whether it did. Through
// raft they would wait for two turns of the loop. Raft gets the answer only if its term is not this
// node's, or if this node is no follower.
func (l *Lease) answerWaiting(m *raftpb.Message) bool {
	l.mu.Lock()
	mine := l.mu.role == raft.StateFollower && m.GetTerm() == l.mu.term && len(m.GetEntries()) == 1
	var done finished
	if mine {
		done = l.readStatesLocked([]raft.ReadState{{Index: m.GetIndex(), RequestCtx: m.GetEntries()[0].GetData()}})
	}
	l.mu.Unlock()
	done.report()
	return mine
}

// refuseReads fails the waiting reads that match, because of why.
func (l *Lease) refuseReads(why error, match func(*waiter) bool) {
	l.mu.Lock()
	refusal := l.noLeaseLocked(core.NotLeader)
	refusal.Err = why
	done := l.failWaitingLocked(refusal, match)
	if l.mu.reads.waiting.len() == 0 {
		l.mu.reads.asked = false
	}
	l.mu.Unlock()
	done.report()
}

func (l *Lease) readIndexResp(m *raftpb.Message, term, index uint64) *raftpb.Message {
	resp := &raftpb.Message{
		Type:    raftpb.MsgReadIndexResp.Enum(),
		To:      m.From,
		From:    new(l.id()),
		Term:    new(term),
		Index:   new(index),
		Entries: m.GetEntries(),
	}
	attachAnswer(resp)
	return resp
}
