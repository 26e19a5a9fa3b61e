package leaderlease

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// outboundLocked stamps and withholds messages on their way out. A transfer is
// looked for first: it ends the lease and stops the probes of its own Ready.
// Requests for votes wait until their term is durable (V9); what binds this node
// by then is a promise to a leader of that term or a later one, which they cannot
// unseat.
func (l *Lease) outboundLocked(msgs []*raftpb.Message, now core.Instant) []*raftpb.Message {
	for _, m := range msgs {
		if m.GetType() == raftpb.MsgTimeoutNow {
			l.releaseLocked(m, now)
		}
	}
	kept := without(msgs, func(m *raftpb.Message) bool { return !l.mayLeaveLocked(m, now) })
	if !l.cfg.Raft.AsyncStorageWrites {
		return kept // the whole Ready is durable before any of it is sent
	}
	kept, stray := core.DelayVotes(kept)
	for _, m := range stray {
		l.stats.withhold(m.GetType(), false)
		core.Void(m)
	}
	return kept
}

// without returns msgs less those that are withheld, which are voided: who sends
// them all the same, from a copy of the Ready, sends nothing. The array of msgs is
// not changed, since raft may still hold it.
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

// mayLeaveLocked stamps m and reports whether it may be sent.
func (l *Lease) mayLeaveLocked(m *raftpb.Message, now core.Instant) bool {
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
		return !l.holdsAppendLocked(m)
	}
	return true
}

// stampProbeLocked puts the probe on a heartbeat of the current reign (L1).
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

// stampGrantLocked puts the newest promise on a heartbeat response (V2). A node
// that has begun to campaign gives nothing out: its own vote may be on its way.
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

// candidacyLocked withholds requests for votes while this node is bound (V4), or has a
// configuration change to apply, and passes the release on with the forced ones (L6).
func (l *Lease) candidacyLocked(m *raftpb.Message, now core.Instant) bool {
	if l.holdsCandidacyLocked() {
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

// voteLocked withholds granted votes while this node is bound (V4): the filter
// and raft's Step are not one critical section, so a vote may have been cast
// before the promise was made. A pre-vote helps nobody to win; only the node's
// own counts, where it is alone a quorum (V5). Answers to others say what is committed.
func (l *Lease) voteLocked(m *raftpb.Message, now core.Instant) bool {
	l.tellCommitLocked(m)
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

// storageAppendLocked applies the same rule to the responses that the storage
// thread delivers, also those to this node itself.
func (l *Lease) storageAppendLocked(m *raftpb.Message, now core.Instant) {
	withheld := func(r *raftpb.Message) bool {
		vote := r.GetType() == raftpb.MsgVoteResp || r.GetType() == raftpb.MsgPreVoteResp
		return vote && !l.voteLocked(r, now)
	}
	m.Responses = without(m.GetResponses(), withheld)
}

// mayAnswerLocked reports whether raft's answer to a ReadIndex is right. Raft
// itself answers with a stale index while it is a sole voter that has not
// committed in its term, and when it is a voter no more (raft.go, MsgReadIndex).
// The answer may come to light later than it was given, so it must also cover
// the first entry of the reign.
func (l *Lease) mayAnswerLocked(index uint64) bool {
	return l.mayAskLocked() && index >= l.mu.ownIndex && !l.mu.checks.leaseBased
}

// mayAskLocked reports whether raft would answer a ReadIndex rightly if it were
// asked now.
func (l *Lease) mayAskLocked() bool {
	return l.mu.lease.Term() != 0 && l.mu.lease.HasOwnTermCommit() && l.mu.lease.IsVoter()
}
