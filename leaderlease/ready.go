package leaderlease

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Ready filters a raft.Ready. It must be the first call for each, before anything of it is persisted, sent or
// applied:
//
//	rd := node.Ready()
//	lease.Ready(&rd)
//
// It gives the lease up if leadership is gone, publishes the new commit index, stamps heartbeats and
// their responses, and withholds votes that a promise forbids (L1, L6, L7, V2, V4). It removes withheld
// messages from rd.Messages, and the answers to the lease's own reads from rd.ReadStates. With
// AsyncStorageWrites it also filters the responses in rd.Messages.
//
// Messages are stamped in place, and a withheld one becomes a MsgUnreachable, which raft does not step.
// So a shallow copy of rd may be sent afterwards.
//
// A Ready that raft of this node cannot have made after the previous one is a misuse. Examples are two
// nodes that share a Lease, and a Storage that was filled after New.
//
// Without AsyncStorageWrites raft counts this node's own vote in Advance. So Ready blocks before such an Advance
// until the restart hold and the promises that grants have reported are over (V5): for at most the longest promise,
// by the lease clock. A disruption or step of the clock begins that time anew, and a clock that fails or stands
// still prolongs it. Ready rarely blocks in a loop that asks Tick before each tick of raft. The causes are a burst
// of ticks, a Campaign without CanCampaign, a fault of the clock during a campaign, and a configuration that is not
// known yet. Loops that must not block, or that drive their clock themselves, call WouldBlock.
func (l *Lease) Ready(rd *raft.Ready) {
	if l == nil {
		return
	}
	l.holdBack(rd, nil)
	l.ready(rd)
}

// ready is Ready without the wait.
func (l *Lease) ready(rd *raft.Ready) {
	l.mu.Lock()
	now := l.nowLocked()
	l.mu.ready = true
	done := l.checkReadyLocked(rd, now)
	done = append(done, l.followLocked(rd, now)...)
	rd.Messages = l.outboundLocked(rd.Messages, now)
	// The view is published before anything of this Ready leaves (L7, L8).
	done = append(done, l.publishLocked(now)...)
	done = append(done, l.readStatesLocked(rd.ReadStates)...)
	rd.ReadStates = l.nonce.others(rd.ReadStates)
	l.mu.Unlock()
	done.report()
}

// followLocked takes over role, term, commit index and configuration from rd.
func (l *Lease) followLocked(rd *raft.Ready, now core.Instant) (done finished) {
	mu := &l.mu
	term, leader, led := mu.term, mu.leader, mu.lease.Term()
	commit := l.commit.Load()
	if !raft.IsEmptyHardState(rd.HardState) {
		mu.term = rd.HardState.GetTerm()
		commit = max(commit, rd.HardState.GetCommit())
		mu.guard.SetTerm(mu.term)
	}
	if rd.SoftState != nil {
		mu.role, mu.leader = rd.RaftState, rd.Lead
	}
	if rule := l.noteAppendedLocked(rd.Entries); rule != "" {
		done = l.blameLocked(rule, false)
	}
	if n := len(rd.CommittedEntries); n > 0 {
		commit = max(commit, rd.CommittedEntries[n-1].GetIndex())
		mu.conf.noteCommitted(rd.CommittedEntries)
		// With AsyncStorageWrites, entries that raft hands out are on disk, and the first HardState too.
		mu.durable = true
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		// Raft has switched to the snapshot's configuration already.
		commit = max(commit, rd.Snapshot.GetMetadata().GetIndex())
		mu.conf.noteRestored(rd.Snapshot.GetMetadata().GetIndex())
		l.setVotersLocked(rd.Snapshot.GetMetadata().GetConfState(), now)
	}
	mu.committed.follow(rd)
	// Most Readys of an idle group change nothing. If nothing is written, the readers' caches stay valid.
	if commit != l.commit.Load() {
		l.commit.Store(commit)
	}

	if mu.term != term || mu.leader != leader {
		done = append(done, l.failReadsLocked(l.noLeaseLocked(core.NotLeader), false)...)
	}
	done = append(done, l.checkRoundsLocked(rd, led)...)
	l.followLeadershipLocked(rd.Entries, commit, now)
	l.traceRaftLocked(now)
	return done
}

// followLeadershipLocked tells the core when this node begins and ceases to lead, and when it has
// committed an entry of its own term (L4). A leader's first entry passes through Ready before it can be
// committed.
func (l *Lease) followLeadershipLocked(entries []*raftpb.Entry, commit uint64, now core.Instant) {
	mu := &l.mu
	if mu.role != raft.StateLeader {
		mu.ownIndex = 0
		mu.lease.StepDown()
		return
	}
	if mu.lease.Term() != mu.term {
		mu.ownIndex = 0
		mu.lease.Lead(mu.term, now)
	}
	for _, e := range entries {
		if mu.ownIndex != 0 {
			break
		}
		if e.GetTerm() == mu.term {
			mu.ownIndex = e.GetIndex()
		}
	}
	if mu.ownIndex != 0 && commit >= mu.ownIndex && !mu.lease.HasOwnTermCommit() {
		mu.lease.OwnTermCommitted()
		mu.reads.rebase(now, commit)
	}
}

// holdBack waits until this node may campaign without breaking a promise on which a leader relies. It
// reports false if stop ended the wait. Without AsyncStorageWrites raft counts the node's own vote in
// Advance, where no filter sees it (V5). No grant leaves meanwhile.
func (l *Lease) holdBack(rd *raft.Ready, stop <-chan struct{}) bool {
	for l.WouldBlock(rd) {
		l.stats.withheld.self.Add(1)
		l.mu.Lock()
		left := l.mu.guard.Info(l.nowLocked())
		l.mu.Unlock()
		select {
		case <-time.After(max(left.Remaining, left.Hold, time.Millisecond)):
		case <-stop:
			return false
		}
	}
	return true
}

// WouldBlock reports whether Ready(rd) would block now. A loop that must not block goes on with Step and
// Tick, does nothing with rd, does not call Advance, and asks again later.
func (l *Lease) WouldBlock(rd *raft.Ready) bool {
	if l == nil {
		return false
	}
	if rd.SoftState == nil || l.cfg.Raft.AsyncStorageWrites || rd.RaftState == raft.StateFollower {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.nowLocked()
	l.recheckStorageLocked(now)
	// A pre-candidate's own vote elects it only if it is alone a quorum.
	counts := rd.RaftState == raft.StateCandidate || l.maybeAloneLocked()
	return counts && l.mu.guard.Owes(now)
}
