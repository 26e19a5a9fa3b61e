package kvnode

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/confchange"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// applyJob is a MsgStorageApply, or a snapshot to restore, of which raft has a MsgStorageAppend
// and no MsgStorageApply.
type applyJob struct {
	entries   []*raftpb.Entry
	responses []*raftpb.Message // to raft, once the entries are applied

	restore *raftpb.Snapshot
	done    chan<- struct{} // closed when restore is done
}

// applier changes the store. Nobody else does while the node runs, so what it looks up there
// stays so until it changes it itself.
type applier struct {
	*parts
	// jobs come from the loop and, for snapshots, from the appender. The box keeps the order in
	// which raft has handed them out, which is that of the log. It has no bound of its own: raft
	// hands out no more than MaxCommittedSizePerReady that it has not heard of again. So the
	// loop never waits for the applier, which may wait for it (applyConf).
	jobs        lifecycle.Mailbox[applyJob]
	proposals   *proposals.Pending
	replay      *replay
	received    *received
	checkpoints *checkpoints
	disk        *disk
	routes      *routes
	applying    *applying
	local       *lifecycle.Mailbox[*raftpb.Message] // to raft

	// superseded is the index of a snapshot that raft has restored already, but the store
	// has not yet, since its job comes behind the one that is being done. Entries up to it are
	// in that snapshot, and are skipped. The applier only, and the loop while the applier waits
	// for it in applyConf.
	superseded uint64
	term       uint64 // of the newest entry, or snapshot, as this process has applied it

	progress progress // noted at each entry, and at each try to write to a full disk; any goroutine reads
}

// run is the applier, the one goroutine that changes the store. Everything it does
// there is a function of the log, so all members come to the same state. What it does
// besides (waking waiters, logging, asking for checkpoints) is this member's own affair.
func (a *applier) run() {
	var jobs []applyJob
	for {
		select {
		case <-a.life.Stopping():
			return
		case <-a.jobs.Wakeup:
		}
		// All that waits, in order. The slice of the turn before goes back into the box, so a
		// busy applier allocates none.
		jobs = a.jobs.Drain(jobs)
		for _, j := range jobs {
			if !a.runJob(j) {
				return
			}
		}
		a.progress.rest()
		clear(jobs) // what was applied is not kept until more comes
	}
}

// runJob applies a job and then tells those who wait for it: the lease, whose reads wait
// for an index; stale reads, which wait for the replay's end; raft, which hands out more.
// It returns false if the node stops, or has failed.
func (a *applier) runJob(j applyJob) bool {
	if j.restore != nil {
		// A large snapshot takes longer than any limit on progress, and after a restart of the
		// member it would begin anew.
		a.progress.rest()
		if err := a.restore(j.restore); err != nil {
			a.life.Fail(err)
			return false
		}
		a.replay.look()
		close(j.done)
		return true
	}
	bytes := 0
	for _, e := range j.entries {
		if e.GetIndex() <= max(a.store.Applied(), a.superseded) {
			continue // a snapshot was faster: what e did is in it
		}
		// Counted before it is applied, and also if it has no effect: a restart reads it again.
		bytes += len(e.GetData())
		if !a.applyEntry(e) {
			return false
		}
	}
	// The store is first: whoever is let go by one of these reads it at once. Raft is last: it
	// frees then what counts as uncommitted, and lets the next change of the configuration in.
	a.lease.Applied(a.store.Applied())
	a.replay.look()
	a.local.Push(j.responses...)
	a.checkpoints.due(bytes)
	return true
}

// applyEntry applies one entry and wakes the waiter, if the entry was proposed here. An
// entry that does not decode has no effect, the same on all members, and is counted. It
// returns false if the node stops meanwhile.
func (a *applier) applyEntry(e *raftpb.Entry) bool {
	begun := time.Now()
	a.progress.note(begun)
	a.reach(e.GetTerm())
	switch e.GetType() {
	case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
		return a.applyConf(e)
	default:
		// begun is for a histogram and for progress only: nothing that the store does may depend on it.
		before := a.store.Alarms()
		r := a.store.Apply(e.GetIndex(), e.GetTerm(), e.GetData())
		a.applying.count(&r, e.GetIndex(), time.Since(begun))
		if errors.Is(r.Err, store.ErrMalformed) {
			a.malformed(r.Err, "index", e.GetIndex())
		}
		a.proposals.Finish(r)
		a.sayAlarms(before)
		return true
	}
}

// reach notes that all before the first entry of a term is applied.
func (a *applier) reach(term uint64) {
	if term > a.term {
		a.term = term
		a.proposals.TermReached(term)
	}
}

// applyConf switches raft and the lease, in the loop, and then the store, before
// raft hears that the change was applied (L5). Before all that the log learns that
// the change is committed, or after a crash the old members would count.
//
// Raft and the lease switch in one turn of the loop: a lease that counted the old quorum
// while raft went by the new one could be held by a leader that the new quorum does not
// know. The store comes after raft, since who asks it for the members may act on them; and
// before the waiter is told, so that a client that has been answered reads its own change.
//
// If raft has meanwhile restored a snapshot from beyond the change, the snapshot's
// configuration stands: applying the change would undo it. What became of the proposal is
// not known here then, and its waiter gets ErrTimeout.
func (a *applier) applyConf(e *raftpb.Entry) bool {
	if !a.disk.saveCommit(e.GetIndex()) {
		return false
	}
	// By the registry as the entry before has left it: all members refuse, or carry out, the
	// same change here, whatever they knew when it was proposed.
	plan := confchange.PlanEntry(a.store.Members(), e, a.cfg.newestFormat)
	if plan.Stop != nil {
		a.life.Fail(fmt.Errorf("configuration change at index %d: %w", e.GetIndex(), plan.Stop))
		return false
	}
	// What is refused is a change of nobody to raft, which must hear of one all the same: it lets
	// no other change in before.
	if errors.Is(plan.Refusal, confchange.ErrMalformed) {
		a.malformed(plan.Refusal, "index", e.GetIndex())
	}
	// It is decided what becomes of the proposal, even if this member steps down by it: the
	// reign's end, which the loop sees while it applies the change, must not find the waiter and
	// tell it ErrLeaderChanged.
	answer := a.proposals.Claim(plan.Proposal)
	// conf stays nil if raft is past the change. The applier waits meanwhile, so the loop may
	// write superseded and conf.
	var conf *raftpb.ConfState
	ok := a.calls.do(func(l *raftLoop) {
		// A snapshot that was stepped in this turn shows in a Ready only: without a look at it,
		// restored would be old, and the change would be applied to a newer configuration.
		l.handleReadys()
		if l.restored >= e.GetIndex() {
			a.superseded = l.restored
			return
		}
		conf = l.raw.ApplyConfChange(plan.Raft)
		a.lease.ApplyConfState(e.GetIndex(), conf)
	})
	if !ok {
		answer(store.Result{}, ErrStopped)
		return false
	}
	if conf == nil {
		// Raft is past it: nothing is applied until the store is, too. The snapshot is on its way
		// here, as the appender has it from the same Ready.
		answer(store.Result{}, ErrTimeout)
		return true
	}
	a.store.ApplyConf(e.GetIndex(), e.GetTerm(), conf, plan.Registry)
	// Links before the answer: once a client hears that a member was removed, this one has no
	// link to it any more, and one that was added is dialled.
	a.routes.connect()
	answer(store.Result{ID: plan.Proposal, Err: plan.Refusal}, nil)
	// It must not end by itself: those who are left may need its vote to hear of it (leave.go).
	if plan.Removes(a.ID()) {
		a.log.Warn("this member was removed, and goes on until enough of those who are left know")
	}
	return true
}

// restore replaces the state by the snapshot that the log now begins with. The file is durable
// and was checked before raft heard of it (received.save), so if it cannot be restored the
// disk has lost it, and the member ends: its log goes on from an index that the store is not
// at. A snapshot that is no news is passed over.
func (a *applier) restore(snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	if index <= a.store.Applied() {
		return nil
	}
	// Before the store shows what the snapshot contains.
	a.proposals.SnapshotRestored()
	before := a.store.Alarms()
	// Restore consumes the file. After a crash before its end the file is still there, and after one
	// behind it the store is at the index: the next start finishes either (reconcile).
	if err := a.store.Restore(a.received.path(index)); err != nil {
		return fmt.Errorf("restore the snapshot of index %d: %w", index, err)
	}
	a.sayAlarms(before)
	a.log.Info("restored a snapshot", "index", index, "revision", a.store.Revision())
	a.received.drop(index)
	a.reach(snap.GetMetadata().GetTerm())
	// Reads that wait for an index in the snapshot go on: no entry that leads there will be applied.
	a.lease.Applied(a.store.Applied())
	a.routes.connect() // the snapshot's registry may have other members
	return nil
}
