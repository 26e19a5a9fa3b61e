package leaderlease

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// outboundLocked stamps and withholds outbound messages. It looks for a transfer first, which ends the
// lease and stops the probes of the same Ready. Requests for votes wait until their term is durable (V9).
// A promise that this node makes meanwhile is to a leader of that term or a later one, which these votes
// cannot depose.
func (l *Lease) outboundLocked(msgs []*raftpb.Message, now core.Instant) []*raftpb.Message {
	for _, m := range msgs {
		if m.GetType() == raftpb.MsgTimeoutNow {
			l.releaseLocked(m, now)
		}
	}
	kept := without(msgs, func(m *raftpb.Message) bool { return !l.stampOrWithholdLocked(m, now) })
	if !l.cfg.Raft.AsyncStorageWrites {
		return kept // a candidate's HardState is durable before its messages are sent
	}
	kept, stray := core.DelayVotes(kept)
	for _, m := range stray {
		l.stats.withhold(m.GetType(), false)
		core.Void(m)
	}
	return kept
}

// without returns msgs without the withheld ones, which it voids, so that sending them from a copy of the
// Ready does no harm. It does not change the array of msgs, which raft may still hold.
func without(msgs []*raftpb.Message, withheld func(*raftpb.Message) bool) []*raftpb.Message {
	kept, dropped := msgs, false
	for i, m := range msgs {
		switch {
		case withheld(m):
			core.Void(m)
			if !dropped {
				kept, dropped = slices.Clone(msgs[:i]), true
			}
		case dropped:
			kept = append(kept, m)
		}
	}
	return kept
}

// stampOrWithholdLocked stamps m and reports whether it may be sent.
func (l *Lease) stampOrWithholdLocked(m *raftpb.Message, now core.Instant) bool {
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		l.stampProbeLocked(m, now)
	case raftpb.MsgHeartbeatResp:
		l.stampGrantLocked(m, now)
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return l.candidacyLocked(m, now)
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		return l.voteLocked(m, now)
	case raftpb.MsgReadIndexResp:
		if !l.mayAnswerLocked(m.GetIndex()) {
			return false
		}
		attachAnswer(m)
	case raftpb.MsgStorageAppend:
		l.storageAppendLocked(m, now)
	case raftpb.MsgApp:
		return !l.mustHoldAppendLocked(m)
	}
	return true
}

// stampProbeLocked puts a probe on a heartbeat of the term that this node leads (L1).
func (l *Lease) stampProbeLocked(m *raftpb.Message, now core.Instant) {
	if m.GetTerm() != l.mu.lease.Term() {
		return
	}
	if p, ok := l.mu.lease.Probe(now); ok {
		attachProbe(m, p)
		l.traceProbeLocked(leasetrace.KindProbe, m, m.GetTo(), now, p, ProcessID{}, true)
		l.stats.probes.Add(1)
	}
}

// stampGrantLocked puts the newest promise on a heartbeat response (V2). A node that campaigns grants
// nothing, since its own vote may be on its way.
func (l *Lease) stampGrantLocked(m *raftpb.Message, now core.Instant) {
	if l.mu.role != raft.StateFollower || !l.mu.durable {
		return
	}
	if g, ok := l.mu.guard.Grant(m.GetTo(), m.GetTerm(), now); ok {
		attachGrant(m, g)
		l.traceGrantLocked(leasetrace.KindGrant, m, m.GetTo(), now, g, true)
		l.stats.grants.Add(1)
	}
}

// candidacyLocked withholds requests for votes while this node is bound (V4), or has a configuration
// change to apply. It passes the release on with forced votes (L6).
func (l *Lease) candidacyLocked(m *raftpb.Message, now core.Instant) bool {
	if l.mustHoldCandidacyLocked() {
		l.stats.withhold(m.GetType(), false)
		return false
	}
	if l.mu.guard.Bound(now) {
		l.stats.withhold(m.GetType(), false)
		l.traceMessageLocked(leasetrace.KindCandidacy, m, m.GetTo(), now, nil, false)
		return false
	}
	var rel *core.Release
	if core.IsForcedVote(m) {
		if r, ok := l.mu.guard.Released(m.GetTerm()); ok {
			attachRelease(m, r)
			rel = &r
		}
	}
	l.traceMessageLocked(leasetrace.KindCandidacy, m, m.GetTo(), now, rel, true)
	return true
}

// voteLocked withholds granted votes while this node is bound (V4). Incoming and raft's Step are not one
// critical section, so raft may have cast a vote before the promise was made. Granted pre-votes may
// leave: they elect no node, except the node itself if it is alone a quorum (V5). Each answer, a rejection
// too, carries the commit index hint.
func (l *Lease) voteLocked(m *raftpb.Message, now core.Instant) bool {
	l.attachCommitLocked(m)
	if m.GetReject() {
		return true
	}
	may := !l.mu.guard.Bound(now) || (m.GetType() == raftpb.MsgPreVoteResp && m.GetTo() != l.id())
	l.traceMessageLocked(leasetrace.KindVoteOut, m, m.GetTo(), now, nil, may)
	if !may {
		l.stats.withhold(m.GetType(), false)
	}
	return may
}

// storageAppendLocked applies voteLocked to the responses that the storage thread delivers, including
// those to this node itself.
func (l *Lease) storageAppendLocked(m *raftpb.Message, now core.Instant) {
	withheld := func(r *raftpb.Message) bool {
		vote := r.GetType() == raftpb.MsgVoteResp || r.GetType() == raftpb.MsgPreVoteResp
		return vote && !l.voteLocked(r, now)
	}
	m.Responses = without(m.GetResponses(), withheld)
}

// mayAnswerLocked reports whether raft's answer to a ReadIndex is right. Raft answers with a stale index
// while it is a sole voter that has not committed in its term, and when it is no voter any more
// (MsgReadIndex in raft.go). Raft may have given the answer before this node led in this term, so the
// answer must also cover the first entry of this term.
func (l *Lease) mayAnswerLocked(index uint64) bool {
	return l.mayAskLocked() && index >= l.mu.ownIndex && !l.mu.checks.leaseBased
}

// mayAskLocked reports whether raft would answer a ReadIndex correctly now.
func (l *Lease) mayAskLocked() bool {
	return l.mu.lease.Term() != 0 && l.mu.lease.HasOwnTermCommit() && l.mu.lease.IsVoter()
}
