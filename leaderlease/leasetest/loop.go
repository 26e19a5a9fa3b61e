package leasetest

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// maxTurns is far more Readys than one event can cause.
const maxTurns = 10_000

// pump handles everything raft has ready, in the order an embedder must.
func (n *Node) pump() {
	n.observe()
	if n.lags && n.up && !n.paused {
		n.takeReadRequest()
	}
	for turns := 0; n.up && !n.paused && !n.busy; turns++ {
		if turns > maxTurns {
			panic(fmt.Sprintf("node %d has been ready %d times in no time", n.ID, turns))
		}
		n.takeReadRequest()
		if !n.raw.HasReady() {
			break
		}
		n.handleReady()
		n.observe()
	}
}

// Kick lets the node handle what was done to its RawNode.
func (n *Node) Kick() { n.exec(func() {}) }

func (n *Node) takeReadRequest() {
	if n.lease == nil {
		return
	}
	select {
	case rctx := <-n.lease.ReadRequests():
		n.raw.ReadIndex(rctx)
	default:
	}
}

func (n *Node) handleReady() {
	ready := n.raw.Ready()
	rd := &ready
	if n.holdsBack(rd) {
		n.heldBack++
		n.busy = true
		n.later(time.Millisecond, func() { n.resumeReady(rd) })
		return
	}
	n.processReady(rd)
}

// holdsBack reports whether Lease.Ready would block now, which it must not in
// virtual time: a sole voter without AsyncStorageWrites that campaigns while it
// is bound (V5). The cluster lets time pass instead.
func (n *Node) holdsBack(rd *raft.Ready) bool {
	return n.lease != nil && n.mistake() != NeverReady && n.lease.WouldBlock(rd)
}

// HeldBack returns how many Readys the node has held back until it was bound no
// more (V5).
func (n *Node) HeldBack() int { return n.heldBack }

func (n *Node) resumeReady(rd *raft.Ready) {
	n.onWriteDone(func() {
		if n.holdsBack(rd) {
			n.later(time.Millisecond, func() { n.resumeReady(rd) })
			return
		}
		n.processReady(rd)
	})
}

func (n *Node) processReady(rd *raft.Ready) {
	n.handed = max(n.handed, newestChange(rd.CommittedEntries))
	msgs := n.filter(rd)
	if n.cluster.OnReady != nil {
		n.cluster.OnReady(n, msgs)
	}
	strange := func(s raft.ReadState) bool { return len(s.RequestCtx) != stockRequest }
	if slices.ContainsFunc(rd.ReadStates, strange) && n.lease != nil && n.mistake() == NoMistake && n.Process() == 1 {
		panic(fmt.Sprintf("node %d has an answer that nobody but its Lease has asked for", n.ID))
	}
	n.stockReadStates(rd.ReadStates)
	if n.Options.Async {
		n.dispatch(msgs)
		n.filterLate(rd)
		return
	}
	n.busy = true
	n.startWrite(write{entries: rd.Entries, hard: rd.HardState, snap: rd.Snapshot}, func() {
		n.send(msgs)
		n.filterLate(rd)
		n.restore(rd.Snapshot)
		if n.Options.EarlyAdvance {
			n.advanceEarly(rd)
			return
		}
		n.afterApplyDelay(rd.CommittedEntries, func() {
			n.knowChanges(rd.CommittedEntries, func() {
				n.apply(rd.CommittedEntries)
				n.raw.Advance(*rd)
				n.busy = false
				n.stepSnapshots()
				n.observe()
			})
		})
	})
}

// advanceEarly lets an apply thread of its own apply what rd has committed.
func (n *Node) advanceEarly(rd *raft.Ready) {
	if len(rd.CommittedEntries) > 0 {
		n.applies.push(n, func(done func()) { n.applyThread(&raftpb.Message{Entries: rd.CommittedEntries}, done) })
	}
	n.raw.Advance(*rd)
	n.busy = false
	n.stepSnapshots()
	n.observe()
}

// filter returns what of rd leaves.
func (n *Node) filter(rd *raft.Ready) []*raftpb.Message {
	if n.lease == nil {
		return n.plainly(rd.Messages)
	}
	if m := n.mistake(); m != NoMistake {
		return n.mistaken(m, rd)
	}
	n.lease.Ready(rd)
	return rd.Messages
}

// plainly returns what of msgs leaves a node without the library. It keeps V9 by
// itself: raft diverges without it, whoever serves the reads.
func (n *Node) plainly(msgs []*raftpb.Message) []*raftpb.Message {
	if n.Options.Async && !n.Options.HastyVotes {
		msgs, _ = core.DelayVotes(msgs)
	}
	return msgs
}

// afterApplyDelay runs f once the state machine is done with entries.
func (n *Node) afterApplyDelay(entries []*raftpb.Entry, f func()) {
	if len(entries) > 0 {
		if d := delay(n.Options.ApplyDelay); d > 0 {
			n.later(d, func() { n.onWriteDone(f) })
			return
		}
	}
	f()
}

// dispatch hands the messages of an asynchronous Ready to whom they are for.
func (n *Node) dispatch(msgs []*raftpb.Message) {
	for _, m := range msgs {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			n.superseded = max(n.superseded, m.GetSnapshot().GetMetadata().GetIndex())
			n.appends.push(n, func(done func()) { n.appendThread(m, done) })
		case raft.LocalApplyThread:
			n.applies.push(n, func(done func()) { n.applyThread(m, done) })
		default:
			n.send([]*raftpb.Message{m})
		}
	}
}

func (n *Node) appendThread(m *raftpb.Message, done func()) {
	hard := &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	n.startWrite(write{entries: m.GetEntries(), hard: hard, snap: m.GetSnapshot()}, func() {
		n.restore(m.GetSnapshot())
		n.respond(m.GetResponses())
		done()
	})
}

func (n *Node) applyThread(m *raftpb.Message, done func()) {
	n.later(delay(n.Options.ApplyDelay), func() {
		n.knowChanges(m.GetEntries(), func() {
			n.exec(func() {
				n.apply(m.GetEntries())
				n.respond(m.GetResponses())
				done()
			})
		})
	})
}

// respond delivers what a local thread has to say.
func (n *Node) respond(msgs []*raftpb.Message) {
	for _, m := range msgs {
		if m.GetTo() == n.ID {
			n.stepRaw(m)
			continue
		}
		n.send([]*raftpb.Message{m})
	}
}

func (n *Node) send(msgs []*raftpb.Message) {
	for _, m := range msgs {
		n.tellCommit(m)
		n.mark(m)
		n.cluster.Net.send(m, n.ProcessID())
		if m.GetType() == raftpb.MsgSnap {
			to := m.GetTo()
			n.later(10*time.Millisecond, func() {
				n.exec(func() { n.raw.ReportSnapshot(to, raft.SnapshotFinish) })
			})
		}
	}
}

// queue runs jobs one after the other, as a storage thread does.
type queue struct {
	jobs    []func(done func())
	running bool
}

func (q *queue) push(n *Node, job func(done func())) {
	q.jobs = append(q.jobs, job)
	q.next(n)
}

func (q *queue) next(n *Node) {
	if q.running || len(q.jobs) == 0 {
		return
	}
	job := q.jobs[0]
	q.jobs = slices.Delete(q.jobs, 0, 1)
	q.running = true
	run := n.run
	job(func() {
		if n.run == run {
			q.running = false
			q.next(n)
		}
	})
}
