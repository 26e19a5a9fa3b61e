package kvnode

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/double"
	"github.com/leaderlease/go/kvnode/store"
)

// applyJob is a MsgStorageApply, or a snapshot to restore.
type applyJob struct {
	entries   []*raftpb.Entry
	responses []*raftpb.Message // to raft, once the entries are applied

	restore *raftpb.Snapshot
	done    chan<- struct{} // closed when restore is done
}

// applyQueue is the way from the loop, and for snapshots from the appender, to the
// applier. It keeps the order in which raft has handed jobs out, which is that of the log.
// It has no bound of its own: raft hands out no more than MaxCommittedSizePerReady that it
// has not heard of again. So the loop never waits for the applier, which may wait for it
// (applyConf).
type applyQueue struct {
	ready *sync.Cond // with mu: a job is there, or the queue is closed
	// superseded is the index of a snapshot that raft has restored already, but the store
	// has not yet. Entries up to it are in that snapshot, and are skipped. The applier only,
	// and the loop while the applier waits in call.
	superseded uint64

	mu struct {
		sync.Mutex
		jobs   []applyJob
		closed bool
	}
}

func (q *applyQueue) init() { q.ready = sync.NewCond(&q.mu.Mutex) }

func (q *applyQueue) put(j applyJob) {
	q.mu.Lock()
	q.mu.jobs = append(q.mu.jobs, j)
	q.mu.Unlock()
	q.ready.Signal()
}

// take waits for jobs, and keeps spare for what comes. It returns nil once the
// queue is closed.
func (q *applyQueue) take(spare []applyJob) []applyJob {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.jobs) == 0 && !q.mu.closed {
		q.ready.Wait()
	}
	if q.mu.closed {
		return nil
	}
	return double.Take(&q.mu.jobs, spare)
}

func (q *applyQueue) close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.Unlock()
	q.ready.Broadcast()
}

// applyLoop is the applier, the one goroutine that changes the store. Everything it does
// there is a function of the log, so all members come to the same state. What it does
// besides (waking waiters, logging, asking for checkpoints) is this member's own affair.
func (n *Node) applyLoop() {
	var jobs []applyJob
	for {
		if jobs = n.applies.take(jobs); jobs == nil {
			return
		}
		for _, j := range jobs {
			if !n.runJob(j) {
				return
			}
		}
		clear(jobs) // what was applied is not kept until more comes
	}
}

// runJob applies a job and then tells those who wait for it: the lease, whose reads wait
// for an index; stale reads, which wait for the replay's end; raft, which hands out more.
// It returns false if the node stops, or has failed.
func (n *Node) runJob(j applyJob) bool {
	if j.restore != nil {
		if err := n.restore(j.restore); err != nil {
			n.fail(err)
			return false
		}
		n.replay.look()
		close(j.done)
		return true
	}
	bytes := 0
	for _, e := range j.entries {
		if e.GetIndex() <= max(n.store.Applied(), n.applies.superseded) {
			continue // a snapshot was faster
		}
		bytes += len(e.GetData())
		if !n.applyEntry(e) {
			return false
		}
	}
	n.lease.Applied(n.store.Applied())
	n.replay.look()
	n.local.put(j.responses...)
	n.checkpoints.due(bytes)
	return true
}

// applyEntry applies one entry and wakes the waiter, if the entry was proposed here. An
// entry that does not decode has no effect, the same on all members, and is counted. It
// returns false if the node stops meanwhile.
func (n *Node) applyEntry(e *raftpb.Entry) bool {
	switch e.GetType() {
	case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
		return n.applyConf(e)
	default:
		before := n.store.Alarms()
		begun := time.Now()
		r := n.store.Apply(e.GetIndex(), e.GetTerm(), e.GetData())
		n.applied(&r, e.GetIndex(), time.Since(begun))
		if errors.Is(r.Err, store.ErrMalformed) {
			n.malformed(r.Err, "index", e.GetIndex())
		}
		n.waiters.finish(r)
		n.sayAlarms(before)
		return true
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
func (n *Node) applyConf(e *raftpb.Entry) bool {
	if !n.disk.saveCommit(e.GetIndex()) {
		return false
	}
	plan := planEntry(n.store.Members(), e, n.cfg.newestFormat)
	if plan.stop != nil {
		n.fail(fmt.Errorf("configuration change at index %d: %w", e.GetIndex(), plan.stop))
		return false
	}
	if errors.Is(plan.refusal, errMalformedChange) {
		n.malformed(plan.refusal, "index", e.GetIndex())
	}
	// It is decided what becomes of the proposal, even if this member steps down
	// by it.
	w := n.waiters.remove(plan.proposal)
	var conf *raftpb.ConfState
	ok := n.calls.do(func(l *raftLoop) {
		n.handleReadys() // a snapshot that was stepped just now
		if l.restored >= e.GetIndex() {
			n.applies.superseded = l.restored
			return
		}
		conf = l.raw.ApplyConfChange(plan.raft)
		n.lease.ApplyConfStateAt(e.GetIndex(), conf)
	})
	if !ok {
		if w != nil {
			w.done <- outcome{err: ErrStopped}
		}
		return false
	}
	if conf == nil {
		// Raft is past it: nothing is applied until the store is, too.
		if w != nil {
			w.done <- outcome{err: ErrTimeout}
		}
		return true
	}
	n.store.ApplyConf(e.GetIndex(), e.GetTerm(), conf, plan.registry)
	n.connectPeers()
	if w != nil {
		w.done <- outcome{result: store.Result{ID: plan.proposal, Err: plan.refusal}}
	}
	if plan.removes(n.ID()) {
		n.log.Warn("this member was removed, and goes on until enough of those who are left know")
	}
	return true
}

// restore replaces the state by the snapshot that the log now begins with. It
// runs on the applier's goroutine.
func (n *Node) restore(snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	if index <= n.store.Applied() {
		return nil
	}
	before := n.store.Alarms()
	if err := n.store.Restore(n.received.path(index)); err != nil {
		return fmt.Errorf("restore the snapshot of index %d: %w", index, err)
	}
	n.sayAlarms(before)
	n.log.Info("restored a snapshot", "index", index, "revision", n.store.Revision())
	n.received.drop(index)
	n.lease.Applied(n.store.Applied())
	n.connectPeers()
	return nil
}
