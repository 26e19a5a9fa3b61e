package leaderlease

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Incoming is called for each message from a peer before raft steps it, and reports whether raft
// may step it. It makes promises (V1), counts grants (L2), withholds requests for votes while a
// promise lasts (V3), and answers forwarded reads from the lease. It does not change m, does not
// block, and may be called from any goroutine.
//
// from identifies the process that sent m, as named by the connection on which m arrived. The zero
// value means unknown, which is right for every embedder that does not call ProcessDied: only
// a promise to a known process can be voided by the death of that process (V8). See ProcessID.
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
		return l.forwarded(m)
	case raftpb.MsgReadIndexResp:
		return l.attested(m)
	case raftpb.MsgStorageAppendResp:
		l.stored(m)
	case raftpb.MsgStorageApplyResp:
		l.acknowledged(m)
	}
	return true
}

// promise answers a probe before raft answers the heartbeat (V1).
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

// count takes the grant of a heartbeat response (L2). This is where the lease
// is renewed.
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

// admit keeps requests to help elect someone away from raft while this node is
// bound, unless the leader it is bound to has released it (V3, L6).
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

// panicsLocked reports whether raft would panic on m: a node that was bootstrapped
// from a snapshot and has heard of no term cannot turn a pre-vote down (raft.go,
// send). It would do so because the candidate's log is behind the one it began with,
// so withholding the request costs nobody a vote.
func (l *Lease) panicsLocked(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgPreVote || l.mu.term != 0 {
		return false
	}
	return m.GetLogTerm() < l.termAtStart || (m.GetLogTerm() == l.termAtStart && m.GetIndex() < l.lastAtStart)
}

// mayWin keeps votes for this node away from raft while it is bound: it must not
// be elected (V3). It asked for none; but a node that crashed before its own
// candidacy was durable may be bound in an earlier term when the answers come.
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

// stored notices that the storage thread has made a HardState durable. Only
// loops that pass their local messages through Incoming, as Wrap does, get here.
func (l *Lease) stored(m *raftpb.Message) {
	if raft.IsLocalMsgTarget(m.GetFrom()) {
		l.mu.Lock()
		l.mu.durable = true
		l.mu.Unlock()
	}
}

// forwarded answers a follower's read out of the lease if it can and may.
// Otherwise raft takes a quorum round for it, but only where raft's answer is
// right (see mayAnswerLocked). A new leader keeps it until its reign's first commit, as it
// does with its own reads; else the follower asks again.
func (l *Lease) forwarded(m *raftpb.Message) bool {
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
		l.start(&waiter{remote: true, quorum: quorum, done: func(r ReadResult, err error) {
			if err == nil {
				l.cfg.Send([]*raftpb.Message{l.readIndexResp(m, r.Term, r.Index)})
			}
		}})
	}
	return may
}

// attested takes the answers to this node's reads, and keeps those away that their
// leader does not attest: it runs without the library, and raft's own answer may be
// stale. The reads that wait fail, rather than wait for a better one. So do those
// that asked for a round, if the leader does not say that it made one: it runs a
// version that answers them from its lease.
func (l *Lease) attested(m *raftpb.Message) bool {
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
		return !l.answer(m)
	case err != nil:
		l.stats.countField(err)
		l.refuseReads(m, err, everyone)
		return false
	default:
		l.refuseReads(m, ErrLeaderTooOld, func(w *waiter) bool { return w.quorum && w.round <= asked })
		return !l.answer(m) // it will do for the others
	}
}

// answer lets the reads go that an attested answer serves, and reports whether it did.
// They would wait for two turns of the raft loop otherwise, and raft has nothing to add. It
// decides where it has to: of a term that is not this node's, and of one that does not follow.
func (l *Lease) answer(m *raftpb.Message) bool {
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

// refuseReads fails the waiting reads that match because of the answer m.
func (l *Lease) refuseReads(m *raftpb.Message, why error, match func(*waiter) bool) {
	l.mu.Lock()
	refusal := l.noLeaseLocked(core.NotLeader)
	refusal.Err = fmt.Errorf("node %d does not attest its answer: %w", m.GetFrom(), why)
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
