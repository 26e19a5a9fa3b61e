package kvnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/checkpoint"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease"
)

// applyJob is either raft's MsgStorageApply, with committed entries, or a snapshot to restore, which raft hands out
// in a MsgStorageAppend (logWriter.written).
type applyJob struct {
	entries   []*raftpb.Entry
	responses []*raftpb.Message // to raft, once the entries are applied

	restore *raftpb.Snapshot
	done    chan<- struct{} // closed when restore is done
}

// applier is the only goroutine that changes the store. What it does there is a function of the log, so all
// members reach the same state. All else (outcomes, log lines, checkpoints) concerns this member only.
type applier struct {
	// Immutable.
	self                 uint64
	newestClusterVersion int64 // the newest that this version of kvnode knows
	store                *store.Store
	lease                *leaderlease.Lease
	members              *membership.List
	calls                *calls
	proposals            *proposals.Pending
	replay               *replay
	received             *checkpoint.Received
	checkpoints          *checkpoint.Checkpointer
	disk                 *checkpoint.Disk
	routes               *membership.Routes
	times                *applyTimes
	invalid              *invalidEntries
	local                *lifecycle.Mailbox[*raftpb.Message] // to raft
	life                 *lifecycle.Lifecycle
	log                  *slog.Logger
	progress             *progress // noted at each entry, and at each attempt to write to a full disk

	// jobs come from the loop and, for snapshots, from the appender, in the order of the log. Raft hands
	// out no more than MaxCommittedSizePerReady before it gets responses, so the mailbox needs no bound.
	// The loop never waits for the applier, which may wait for the loop (applyConf).
	jobs *lifecycle.Mailbox[applyJob]

	// superseded is the index of a snapshot that raft has restored and the store has not, because its job comes after
	// the present one. Entries up to it are in that snapshot, and are skipped.
	superseded uint64
	term       uint64 // of the newest entry or snapshot that this process has applied
}

// run applies jobs until the member stops.
func (a *applier) run() {
	var jobs []applyJob
	for {
		select {
		case <-a.life.Stopping():
			return
		case <-a.jobs.Wakeup:
		}
		jobs = a.jobs.Drain(jobs)
		for _, j := range jobs {
			if !a.runJob(j) {
				return
			}
		}
		a.progress.rest()
		clear(jobs) // applied entries are not kept until the next job
	}
}

// runJob applies a job, and reports the new index to the lease, the replay and raft. It returns false if the member
// stops.
func (a *applier) runJob(j applyJob) bool {
	if j.restore != nil {
		// A large snapshot is no stall: a restart would only begin it again.
		a.progress.rest()
		if err := a.restore(j.restore); err != nil {
			a.life.Fail(err)
			return false
		}
		a.replay.entriesApplied()
		close(j.done)
		return true
	}
	bytes := 0
	for _, e := range j.entries {
		if e.GetIndex() <= max(a.store.Applied(), a.superseded) {
			continue // a snapshot contains e
		}
		// Entries without an effect count, too: a restart applies them again.
		bytes += len(e.GetData())
		if !a.applyEntry(e) {
			return false
		}
	}
	// The lease and the replay let waiting reads go on, so they follow the store. Raft is last: its answer frees
	// uncommitted bytes, and lets it take the next configuration change.
	a.lease.Applied(a.store.Applied())
	a.replay.entriesApplied()
	a.local.Push(j.responses...)
	a.checkpoints.Applied(bytes)
	return true
}

// applyEntry applies one entry and sends the outcome to the client that proposed it. An entry that does not decode
// has no effect on any member. applyEntry returns false if the member stops.
func (a *applier) applyEntry(e *raftpb.Entry) bool {
	begun := time.Now()
	a.progress.note(begun)
	a.reachTerm(e.GetTerm())
	switch e.GetType() {
	case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
		return a.applyConf(e)
	default:
		// The store does not see begun: its state must not depend on a clock.
		alarms := a.store.Alarms()
		r := a.store.Apply(e.GetIndex(), e.GetTerm(), e.GetData())
		a.times.note(&r, e.GetIndex(), time.Since(begun))
		if errors.Is(r.Err, store.ErrMalformed) {
			a.invalid.report(r.Err, "index", e.GetIndex())
		}
		a.proposals.Finish(r)
		logAlarms(a.log, a.members, alarms, a.store.Alarms())
		return true
	}
}

// reachTerm tells proposals that the first entry of a term is next, and that all entries before it are applied.
func (a *applier) reachTerm(term uint64) {
	if term > a.term {
		a.term = term
		a.proposals.TermReached(term)
	}
}

// applyConf makes the commit index durable, switches raft and the lease to the new configuration, on the loop, and
// then the store. Without the durable commit index, this member would start with the old configuration after a
// crash. Raft gets the response to the job only after all of that (L5).
//
// Raft and the lease switch in one turn of the loop. With the old quorum in the lease, a leader could hold a lease
// although the new quorum has elected another one. The store precedes the outcome, so that the client of the change
// reads the new members.
//
// Raft may have restored a snapshot meanwhile that contains the change. Then the snapshot's configuration stays,
// and the client gets ErrTimeout: the store shows the change only once it has restored the snapshot.
func (a *applier) applyConf(e *raftpb.Entry) bool {
	if !a.disk.SaveCommit(e.GetIndex(), func() { a.progress.note(time.Now()) }) {
		return false
	}
	// The plan depends on the registry after the previous entry, so all members refuse, or carry out, the same
	// change.
	plan := membership.PlanEntry(a.store.Members(), e, a.newestClusterVersion)
	if plan.Stop != nil {
		a.life.Fail(fmt.Errorf("configuration change at index %d: %w", e.GetIndex(), plan.Stop))
		return false
	}
	if errors.Is(plan.Refusal, membership.ErrMalformedChange) {
		a.invalid.report(plan.Refusal, "index", e.GetIndex())
	}
	// The result of the change is known now. Without Claim, the loop could still fail its proposal with
	// ErrLeaderChanged.
	answer := a.proposals.Claim(plan.Proposal)
	// Raft gets a refused change as one without effect: until it has seen this entry applied, it takes no other
	// change.
	conf, ok := a.switchConf(e.GetIndex(), plan.Raft)
	if !ok {
		answer(store.Result{}, ErrStopped)
		return false
	}
	if conf == nil {
		// The Ready with the snapshot has gone to the appender, which pushes its job. Entries of jobs before that one
		// are skipped (superseded).
		answer(store.Result{}, ErrTimeout)
		return true
	}
	a.store.ApplyConf(e.GetIndex(), e.GetTerm(), conf, plan.Registry)
	// Connections change before the outcome is sent: when a client learns that a member was removed, this member has
	// no connection to it any more.
	a.routes.RegistryChanged()
	answer(store.Result{ID: plan.Proposal, Err: plan.Refusal}, nil)
	// A removed member does not stop at once: the others may need its vote to elect a leader that knows of the
	// removal.
	if plan.Removes(a.self) {
		a.log.Warn("this member was removed, and goes on until enough of the other members know")
	}
	return true
}

// switchConf switches raft and the lease, on the loop. It returns nil if raft has restored a snapshot that contains
// index, and false if the member stops.
func (a *applier) switchConf(index uint64, change raftpb.ConfChangeI) (conf *raftpb.ConfState, ok bool) {
	// The function may still run after ask has returned ErrStopped, so it returns its result by value.
	type result struct {
		conf     *raftpb.ConfState
		restored uint64 // not 0 if raft has restored a snapshot that contains index
	}
	r, err := ask(context.Background(), a.calls, func(l *raftLoop) result {
		// A snapshot that was stepped earlier in this turn is in a Ready that is not handled yet.
		l.handleReadys()
		if l.restored >= index {
			return result{restored: l.restored}
		}
		conf := l.raw.ApplyConfChange(change)
		a.lease.ApplyConfState(index, conf)
		return result{conf: conf}
	})
	if err != nil {
		return nil, false
	}
	if r.conf == nil {
		a.superseded = r.restored
	}
	return r.conf, true
}

// restore replaces the state by the snapshot with which the log now begins. Its file was checked and synced before
// raft saw the snapshot (checkpoint.Received.Receive). If restore fails, the member fails: its log continues at an
// index that the store has not reached. A snapshot that is not newer than the store is ignored.
func (a *applier) restore(snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	if index <= a.store.Applied() {
		return nil
	}
	a.proposals.SnapshotRestored()
	alarms := a.store.Alarms()
	// Restore consumes the file. The next start handles a crash before the end of Restore, and one after it
	// (checkpoint.Checkpointer.Reconcile).
	if err := a.store.Restore(a.received.Path(index)); err != nil {
		return fmt.Errorf("restore the snapshot of index %d: %w", index, err)
	}
	logAlarms(a.log, a.members, alarms, a.store.Alarms())
	a.log.Info("restored a snapshot", "index", index, "revision", a.store.Revision())
	a.received.RemoveUpTo(index)
	a.reachTerm(snap.GetMetadata().GetTerm())
	// Reads may wait for an index that the snapshot contains, of which no entry will be applied.
	a.lease.Applied(a.store.Applied())
	a.routes.RegistryChanged() // the registry of the snapshot may have other members
	return nil
}

// logAlarms logs which alarms were raised and disarmed. Alarms are replicated, so each member logs them.
func logAlarms(log *slog.Logger, names *membership.List, before, now []*pb.AlarmMember) {
	for _, m := range now {
		if !hasAlarm(before, m) {
			log.Error("alarm raised", "type", m.GetAlarm().String(), "by", names.Label(m.GetMemberID()))
		}
	}
	for _, m := range before {
		if !hasAlarm(now, m) {
			log.Info("alarm disarmed", "type", m.GetAlarm().String(), "of", names.Label(m.GetMemberID()))
		}
	}
}

func hasAlarm(all []*pb.AlarmMember, m *pb.AlarmMember) bool {
	return slices.ContainsFunc(all, func(o *pb.AlarmMember) bool {
		return o.GetAlarm() == m.GetAlarm() && o.GetMemberID() == m.GetMemberID()
	})
}
