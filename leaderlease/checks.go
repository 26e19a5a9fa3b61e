package leaderlease

import (
	"cmp"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// checks compares each Ready with the ones before. Each check looks for a Ready that raft
// cannot have made, so a correct embedding never fails one.
type checks struct {
	// handed is the newest committed entry that raft has handed out, or the newest snapshot; 0 before the first.
	handed uint64
	// storageRechecked is set once Storage was compared at the first Ready with what New had read. Wrap sets
	// it at once, so that Storage is not read again.
	storageRechecked bool
	// answersExpected is set once raft may answer ReadIndex in this term: a round has left, a configuration change
	// was pending, or the leader was the only voter, so that raft needed no round.
	answersExpected bool
	// leaseBased is set when raft answers ReadIndex without a round.
	leaseBased bool
}

// checkReadyLocked turns leases off if raft cannot have made rd after the previous Ready. It runs before
// anything is taken over from rd.
func (l *Lease) checkReadyLocked(rd *raft.Ready, now core.Instant) (done finished) {
	if !l.cfg.Raft.AsyncStorageWrites {
		l.acknowledgedLocked(l.mu.checks.handed) // raft makes the next Ready only after Advance
	}
	if rule := l.otherNodeLocked(rd); rule != "" {
		done = l.blameLocked(rule, true)
	}
	l.recheckStorageLocked(now)
	if rule := l.asyncMismatchLocked(rd); rule != "" {
		done = append(done, l.blameLocked(rule, false)...)
	}
	return done
}

// otherNodeLocked returns the broken rule if rd is not the next Ready of the Lease's node: two nodes
// share the Lease, or it does not see each Ready.
func (l *Lease) otherNodeLocked(rd *raft.Ready) (rule string) {
	const advice = "call New for each node, and Ready for each raft.Ready of it, once and in order"
	for _, m := range rd.Messages {
		if fromIsOwnID(m) && m.GetFrom() != l.id() {
			return fmt.Sprintf("Ready has a message of node %x, but the Lease was made for node %x: %s", m.GetFrom(), l.id(), advice)
		}
	}
	if hs := rd.HardState; !raft.IsEmptyHardState(hs) {
		if t := hs.GetTerm(); t < l.mu.term {
			return fmt.Sprintf("Ready has term %d after term %d: %s", t, l.mu.term, advice)
		}
		if c := hs.GetCommit(); c < l.commit.Load() {
			return fmt.Sprintf("Ready has commit index %d after %d: %s", c, l.commit.Load(), advice)
		}
	}
	c := &l.mu.checks
	if !raft.IsEmptySnap(rd.Snapshot) {
		c.handed = rd.Snapshot.GetMetadata().GetIndex()
	}
	if n := len(rd.CommittedEntries); n > 0 {
		first, before := rd.CommittedEntries[0].GetIndex(), c.handed
		c.handed = rd.CommittedEntries[n-1].GetIndex()
		if before != 0 && first != before+1 {
			return fmt.Sprintf("Ready hands out the committed entry %d after %d: %s", first, before, advice)
		}
	}
	return ""
}

// fromIsOwnID reports whether raft puts its own ID into m.From. In a message that a follower forwards to
// its leader, From is the original sender.
func fromIsOwnID(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgSnap,
		raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgTimeoutNow:
		return true
	default:
		return false
	}
}

// recheckStorageLocked reads Storage once more at the first Ready, before anything of it is written, so
// Storage has what raft began with. If New has seen another last index or term, the node has run before
// and may be bound by earlier promises, so its restart hold begins now (V6). No vote has left yet.
func (l *Lease) recheckStorageLocked(now core.Instant) {
	if l.mu.checks.storageRechecked {
		return
	}
	l.mu.checks.storageRechecked = true
	hard, _, err := l.cfg.Raft.Storage.InitialState()
	last, lastErr := l.cfg.Raft.Storage.LastIndex()
	if err == nil && lastErr == nil && hard.GetTerm() == l.hardTermAtStart && last == l.lastAtStart {
		return
	}
	rule := fmt.Sprintf("New has read Storage before the log of the node was in it, or the first Ready was written before it was shown to Ready: "+
		"the log ended at index %d and the HardState had term %d, and at the first Ready they are %d and %d; fill Storage before New. This node does not vote or campaign for %v",
		l.lastAtStart, l.hardTermAtStart, last, hard.GetTerm(), l.longest)
	if err := cmp.Or(err, lastErr); err != nil {
		rule = fmt.Sprintf("Storage cannot be read again at the first Ready: %v; restart the node. This node does not vote or campaign for %v", err, l.longest)
	}
	l.blameLocked(rule, false)
	now = max(now, l.mu.last)
	l.mu.guard.Restarted(now, l.longest)
	// The trace records a disruption of the clock, which has the same effect.
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindClockDisrupted, At: now})
	l.mu.lease.StartOver(now)
	l.publishFaultLocked(now)
}

// asyncMismatchLocked returns the broken rule if raft's AsyncStorageWrites differs from the Lease's.
func (l *Lease) asyncMismatchLocked(rd *raft.Ready) (rule string) {
	writes := false
	for _, m := range rd.Messages {
		writes = writes || m.GetType() == raftpb.MsgStorageAppend || m.GetType() == raftpb.MsgStorageApply
	}
	async := l.cfg.Raft.AsyncStorageWrites
	toWrite := len(rd.Entries) > 0 || len(rd.CommittedEntries) > 0 || !raft.IsEmptyHardState(rd.HardState) || !raft.IsEmptySnap(rd.Snapshot)
	if async == writes || async && !toWrite {
		return ""
	}
	return fmt.Sprintf("raft runs with AsyncStorageWrites %v, and the raft.Config that New was given has %v: give both the same raft.Config", !async, async)
}

// checkRoundsLocked detects ReadOnlyLeaseBased, with which raft answers a leader's ReadIndex at once.
// With ReadOnlySafe an answer follows heartbeats that carry a context. It runs after the new state is
// taken over from rd. led is the term in which this node led before, or 0.
func (l *Lease) checkRoundsLocked(rd *raft.Ready, led uint64) finished {
	mu := &l.mu
	if mu.role != raft.StateLeader {
		return nil
	}
	c := &mu.checks
	if mu.term != led {
		c.answersExpected = false
	}
	answers := len(rd.ReadStates) > 0
	for _, m := range rd.Messages {
		switch m.GetType() {
		case raftpb.MsgHeartbeat:
			c.answersExpected = c.answersExpected || len(m.GetContext()) > 0
		case raftpb.MsgReadIndexResp:
			answers = true
		}
	}
	c.answersExpected = c.answersExpected || mu.conf.pending() || mu.conf.single()
	// In the first Ready of a term, the answers may be those of a former leader.
	if !answers || c.answersExpected || mu.term != led || c.leaseBased {
		return nil
	}
	c.leaseBased = true
	return l.blameLocked("raft answers ReadIndex without a quorum round, as with ReadOnlyLeaseBased: start the node with the raft.Config that New was given, with ReadOnlySafe", true)
}
