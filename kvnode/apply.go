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

// applyJob is a MsgStorageApply, or a snapshot to restore, for which raft has a MsgStorageAppend and no
// MsgStorageApply.
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
	newestClusterVersion int64 // that this version knows
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
	progress             *progress // noted at each entry, and at each try to write to a full disk

	// jobs come from the loop and, for snapshots, from the appender, in the order of the log. Raft hands
	// out no more than MaxCommittedSizePerReady before it gets responses, so the mailbox needs no bound.
	// The loop never waits for the applier, which may wait for the loop (applyConf).
	jobs *lifecycle.Mailbox[applyJob]

	// superseded is the index of a snapshot that raft has restored and the store has not, because its job
	// comes after the present one. Entries up to it are in that snapshot, and are skipped. The loop writes
	// it while the applier waits in applyConf.
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

// runJob applies a job. Then it reports that to the lease, where reads wait for an index, to the replay,
// for which stale reads wait, and to raft, which hands out more. It returns false if the member stops.
func (a *applier) runJob(j applyJob) bool {
	if j.restore != nil {
		// A large snapshot takes longer than any limit on progress, and a restart of the member would not help.
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
		// Entries without an effect count, too: a restart reads them again.
		bytes += len(e.GetData())
		if !a.applyEntry(e) {
			return false
		}
	}
	// The store comes first, as the others let reads go on. Raft comes last: it then frees uncommitted
	// bytes, and takes the next configuration change.
	a.lease.Applied(a.store.Applied())
	a.replay.entriesApplied()
	a.local.Push(j.responses...)
	a.checkpoints.Applied(bytes)
	return true
}

// applyEntry applies one entry and sends the outcome of its proposal. An entry that does not decode has no
// effect on any member. applyEntry returns false if the member stops.
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

// reachTerm reports the first entry of a term, when all entries before it are applied.
func (a *applier) reachTerm(term uint64) {
	if term > a.term {
		a.term = term
		a.proposals.TermReached(term)
	}
}

// applyConf switches raft and the lease to a new configuration, on the loop, and then the store. All of
// that precedes raft's response (L5), and follows a durable commit index, or after a crash the old members
// would count.
//
// Raft and the lease switch in one turn of the loop: a lease with the old quorum could be held by a leader
// that the new quorum does not know. The store comes after raft, because its readers may act on the
// members, and before the outcome, so that the client of the change reads it.
//
// If raft has restored a snapshot from beyond the change meanwhile, the configuration of the snapshot
// stays, as the change would undo it. This member does not learn the result of the change then, and the
// client gets ErrTimeout.
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
	// A refused change is an empty one for raft. Raft must see it, because it takes no other change before.
	if errors.Is(plan.Refusal, membership.ErrMalformedChange) {
		a.invalid.report(plan.Refusal, "index", e.GetIndex())
	}
	// The loop may find a change of the leader while it applies the change, and must not fail the proposal with
	// ErrLeaderChanged: its result is known.
	answer := a.proposals.Claim(plan.Proposal)
	conf, ok := a.switchConf(e.GetIndex(), plan.Raft)
	if !ok {
		answer(store.Result{}, ErrStopped)
		return false
	}
	if conf == nil {
		// Raft is beyond the change, and nothing is applied until the store is, too. The appender has the
		// snapshot from the same Ready, and its job is next.
		answer(store.Result{}, ErrTimeout)
		return true
	}
	a.store.ApplyConf(e.GetIndex(), e.GetTerm(), conf, plan.Registry)
	// Connections precede the outcome: when a client learns that a member was removed, there is no
	// connection to it.
	a.routes.RegistryChanged()
	answer(store.Result{ID: plan.Proposal, Err: plan.Refusal}, nil)
	// A removed member does not end at once: the others may need its vote to learn of the removal.
	if plan.Removes(a.self) {
		a.log.Warn("this member was removed, and goes on until enough of the other members know")
	}
	return true
}

// switchConf switches raft and the lease, on the loop. It returns nil if raft has restored a snapshot from
// beyond index, and false if the member stops.
func (a *applier) switchConf(index uint64, change raftpb.ConfChangeI) (conf *raftpb.ConfState, ok bool) {
	// The function may still run after ask has returned ErrStopped, so it returns its result by value.
	type result struct {
		conf     *raftpb.ConfState
		restored uint64 // not 0 if raft has restored a snapshot from beyond index
	}
	r, err := ask(context.Background(), a.calls, func(l *raftLoop) result {
		// A snapshot that was stepped in this turn is in a Ready that is not handled yet.
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

// restore replaces the state by the snapshot with which the log begins. Its file is durable and was checked
// before raft saw the snapshot (received.save). If it cannot be restored the disk has lost it, and the
// member fails: its log continues from an index that the store has not reached. An old snapshot is ignored.
func (a *applier) restore(snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	if index <= a.store.Applied() {
		return nil
	}
	a.proposals.SnapshotRestored()
	alarms := a.store.Alarms()
	// Restore consumes the file. If the member crashes before the end of Restore, the file is still there;
	// if it crashes later, the store is at the index. The next start completes either (reconcile).
	if err := a.store.Restore(a.received.Path(index)); err != nil {
		return fmt.Errorf("restore the snapshot of index %d: %w", index, err)
	}
	logAlarms(a.log, a.members, alarms, a.store.Alarms())
	a.log.Info("restored a snapshot", "index", index, "revision", a.store.Revision())
	a.received.Remove(index)
	a.reachTerm(snap.GetMetadata().GetTerm())
	// Reads that wait for an index in the snapshot go on: no entry with that index will be applied.
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
