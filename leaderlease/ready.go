package leaderlease

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Ready is the first thing to do with each raft.Ready, before anything of it is
// persisted, sent or applied:
//
//	rd := node.Ready()
//	lease.Ready(&rd)
//
// It gives the lease up if leadership is gone, publishes the new commit index,
// stamps heartbeats and their responses, and withholds votes that a promise forbids
// (L1, L6, L7, V2, V4). It replaces rd.Messages by what may leave, and takes the
// answers to the lease's own reads out of rd.ReadStates; the rest of rd is as raft
// made it, and so is what Advance may be given.
//
// Messages are stamped in place, and one that is withheld becomes a MsgUnreachable,
// which no raft steps. So sending from a copy of rd that was made before does no
// harm, nor does it matter to Advance, which ignores its argument.
//
// A Ready that raft of this node cannot have made after the one before, as where two
// nodes share a Lease or Storage was filled after New, is a misuse.
//
// Without AsyncStorageWrites it blocks where a bound node is about to count its own vote
// (V5). It returns when the lease clock shows the end of the promise: within the longest
// promise after the newest disruption or step of the clock, and not before a clock that
// cannot be read, or stands still, works again. If Tick is asked, it blocks only after a
// burst of ticks, after a Campaign that did not ask CanCampaign, or where the clock has
// failed or was disrupted since a campaign began. Loops that must not block, and loops
// that drive their clock themselves, ask WouldBlock.
func (l *Lease) Ready(rd *raft.Ready) {
	if l == nil {
		return
	}
	l.holdBack(rd, nil)
	l.ready(rd)
}

// ready is Ready for a Ready that nothing holds back.
func (l *Lease) ready(rd *raft.Ready) {
	l.mu.Lock()
	now := l.nowLocked()
	l.mu.ready = true
	done := l.checkLocked(rd, now)
	done = append(done, l.followLocked(rd, now)...)
	rd.Messages = l.outboundLocked(rd.Messages, now)
	// One writer publishes, and before anything of this Ready leaves (L7, L8).
	done = append(done, l.publishLocked(now)...)
	done = append(done, l.readStatesLocked(rd.ReadStates)...)
	rd.ReadStates = l.nonce.others(rd.ReadStates)
	l.mu.Unlock()
	done.report()
}

// followLocked takes over what raft says about role, term, commit index and
// configuration.
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
	if rule := l.appendedLocked(rd.Entries); rule != "" {
		done = l.blameLocked(rule, false)
	}
	if n := len(rd.CommittedEntries); n > 0 {
		commit = max(commit, rd.CommittedEntries[n-1].GetIndex())
		mu.conf.committed(rd.CommittedEntries)
		// Raft hands out what it knows to be on disk, and the first HardState
		// went there no later.
		mu.durable = true
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		// Raft has switched to the snapshot's configuration already.
		commit = max(commit, rd.Snapshot.GetMetadata().GetIndex())
		mu.conf.restored(rd.Snapshot.GetMetadata().GetIndex())
		l.setVotersLocked(rd.Snapshot.GetMetadata().GetConfState(), now)
	}
	mu.committed.follow(rd)
	// Most Readys of an idle group change nothing: readers keep their caches.
	if commit != l.commit.Load() {
		l.commit.Store(commit)
	}

	if mu.term != term || mu.leader != leader {
		done = append(done, l.failReadsLocked(l.noLeaseLocked(core.NotLeader), false)...)
	}
	done = append(done, l.checkRoundsLocked(rd, led)...)
	l.reignLocked(rd.Entries, commit, now)
	l.traceRaftLocked(now)
	return done
}

// reignLocked begins and ends reigns, and notices the first commit of the
// reign's own term (L4). A leader's first entry passes through Ready before it
// can be committed.
func (l *Lease) reignLocked(entries []*raftpb.Entry, commit uint64, now core.Instant) {
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

// holdBack waits until this node may elect itself, or stand for election, without breaking
// a promise that a leader relies on. It reports false if stop ended the wait. Without
// AsyncStorageWrites raft counts the node's own vote in Advance, where no filter sees it
// (V5).
//
// No grant leaves meanwhile.
func (l *Lease) holdBack(rd *raft.Ready, stop <-chan struct{}) bool {
	for l.WouldBlock(rd) {
		l.stats.withheld[WithheldSelf].Add(1)
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

// WouldBlock reports whether Ready(rd) would block now. A loop that must not block
// goes on with Step and Tick, does nothing with rd, does not call Advance, and
// asks again later, at least once in MaxPromise.
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
	l.lateLocked(now)
	// A pre-candidate's own vote elects it only where it is alone.
	counts := rd.RaftState == raft.StateCandidate || l.aloneLocked()
	return counts && l.mu.guard.Owes(now)
}
