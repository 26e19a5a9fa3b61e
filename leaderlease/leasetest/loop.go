package leasetest

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease/core"
)

// maxTurns is far above the number of Readys that one event can cause.
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

// Kick lets the node handle changes that the caller has made to its RawNode.
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

// HeldBack returns how many Readys the node has held back while it was bound (V5).
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
	n.log.add(rd.Entries)
	n.handed = max(n.handed, newestChange(rd.CommittedEntries))
	msgs := n.filter(rd)
	if n.cluster.OnReady != nil {
		n.cluster.OnReady(n, msgs)
	}
	strange := func(s raft.ReadState) bool { return len(s.RequestCtx) != stockRequest }
	if slices.ContainsFunc(rd.ReadStates, strange) && n.lease != nil && n.mistake() == NoMistake && n.Process() == 1 {
		panic(fmt.Sprintf("node %d has a ReadState for a request that its Lease has not made", n.ID))
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
				n.advance(rd)
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
	n.advance(rd)
	n.busy = false
	n.stepSnapshots()
	n.observe()
}

// advance tells raft that rd is handled.
func (n *Node) advance(rd *raft.Ready) {
	n.raw.Advance(*rd)
	if c := rd.CommittedEntries; len(c) > 0 {
		n.told = max(n.told, c[len(c)-1].GetIndex())
	}
}

// filter returns the messages of rd that may leave.
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

// plainly returns the messages that leave a node without the library. Such a node keeps V9
// by itself, since without V9 raft itself diverges.
func (n *Node) plainly(msgs []*raftpb.Message) []*raftpb.Message {
	if n.Options.Async && !n.Options.Without.HoldVotes {
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

// dispatch hands the messages of an asynchronous Ready to the local threads or to the network.
func (n *Node) dispatch(msgs []*raftpb.Message) {
	var held []*raftpb.Message
	for _, m := range msgs {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			n.superseded = max(n.superseded, m.GetSnapshot().GetMetadata().GetIndex())
			n.appends.push(n, func(done func()) { n.appendThread(m, done) })
		case m.GetTo() == raft.LocalApplyThread:
			n.applies.push(n, func(done func()) { n.applyThread(m, done) })
		case n.holdsAppend(m):
			held = append(held, m)
		default:
			n.send([]*raftpb.Message{m})
		}
	}
	if len(held) > 0 {
		n.appends.push(n, func(done func()) {
			n.send(held)
			done()
		})
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
				n.tell(m)
				done()
			})
		})
	})
}

// respond delivers the responses of a local thread.
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

// restore replaces the state machine by a snapshot that raft has accepted.
func (n *Node) restore(snap *raftpb.Snapshot) {
	index := snap.GetMetadata().GetIndex()
	if raft.IsEmptySnap(snap) || index < n.Applied() || (index == n.Applied() && !n.machine.Durable()) {
		return
	}
	if !n.machine.Durable() {
		must(n.machine.Restore(snap))
	}
	n.conf, n.made, n.told = snap.GetMetadata().GetConfState(), max(n.made, index), max(n.told, index)
	n.applied(index)
	if n.lease != nil && n.chosen() == TellsConfTwice {
		n.lease.ApplyConfState(index-1, n.began) // a change that the snapshot covers
	}
}

func (n *Node) apply(entries []*raftpb.Entry) {
	for _, e := range entries {
		if e.GetIndex() <= n.Applied() {
			n.applyAgain(e)
			continue
		}
		if e.GetIndex() <= n.superseded {
			continue
		}
		made := n.machine.Apply(e, n.applyConf(e))
		if n.cluster.OnApply != nil {
			n.cluster.OnApply(n, e, made)
		}
		if done := n.writes[made.Write]; done != nil {
			delete(n.writes, made.Write)
			done(made.Version)
		}
	}
	if len(entries) > 0 {
		n.applied(n.reached(entries))
	}
}

// applyAgain handles an entry that the machine has applied already: a snapshot was faster,
// or was newer than the commit index of the log at the start.
func (n *Node) applyAgain(e *raftpb.Entry) {
	if !n.machine.Durable() {
		return
	}
	n.machine.Apply(e, nil)
	if e.GetType() == raftpb.EntryNormal {
		return
	}
	n.made = max(n.made, e.GetIndex())
	if n.lease != nil && e.GetIndex() > n.confIndex {
		n.lease.ApplyConfState(e.GetIndex(), n.conf)
	}
}

// reached returns the applied index as raft knows it. A durable machine may be ahead of it.
func (n *Node) reached(entries []*raftpb.Entry) uint64 {
	if !n.machine.Durable() {
		return n.Applied()
	}
	return min(n.Applied(), entries[len(entries)-1].GetIndex())
}

func (n *Node) applied(index uint64) {
	if n.lease != nil {
		n.lease.Applied(index)
	}
	n.stockApplied()
}

// applyConf applies a configuration change to raft and then to the Lease. It returns the
// new configuration, or nil for other entries.
func (n *Node) applyConf(e *raftpb.Entry) *raftpb.ConfState {
	cc := confChange(e)
	if cc == nil {
		return nil
	}
	made, before := n.made, n.conf
	n.conf, n.made = n.raw.ApplyConfChange(cc), e.GetIndex()
	n.tellConf(made, before)
	return n.conf
}

// confChange returns the configuration change in an entry, nil if there is none.
func confChange(e *raftpb.Entry) raftpb.ConfChangeI {
	switch e.GetType() {
	case raftpb.EntryConfChange:
		v1 := &raftpb.ConfChange{}
		must(proto.Unmarshal(e.GetData(), v1))
		return v1
	case raftpb.EntryConfChangeV2:
		v2 := &raftpb.ConfChangeV2{}
		must(proto.Unmarshal(e.GetData(), v2))
		return v2
	default:
		return nil
	}
}

// knowChanges runs apply once the commit index of the changes of membership in entries is
// durable. An operator that sees such a change may switch off the removed member. If a crash
// then lost the commit index, the others would wait for that member's vote.
func (n *Node) knowChanges(entries []*raftpb.Entry, apply func()) {
	index := newestChange(entries)
	if index == 0 || n.Options.Without.DurableConf || n.committed(index) == nil {
		apply()
		return
	}
	// The write with that commit index is still in the queue.
	n.appends.push(n, func(done func()) {
		done()
		n.later(0, func() {
			must(n.committed(index))
			apply()
		})
	})
}

// putsOff reports whether m has to wait: m is a snapshot, and entries that raft has handed
// out are still being applied. Raft takes the configuration of the snapshot at once, and
// would apply an older change in those entries again, or panic. With AsyncStorageWrites the
// node sees the snapshot first: see superseded.
func (n *Node) putsOff(m *raftpb.Message) bool {
	if m.GetType() != raftpb.MsgSnap || n.Options.Async || !n.busy {
		return false
	}
	n.snapshots = append(n.snapshots, m)
	return true
}

// stepSnapshots steps the snapshots that were put off.
func (n *Node) stepSnapshots() {
	late := n.snapshots
	n.snapshots = nil
	for _, m := range late {
		n.stepRaw(m)
	}
}

// newestChange returns the index of the last change of membership, 0 if there
// is none.
func newestChange(entries []*raftpb.Entry) (index uint64) {
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal {
			index = e.GetIndex()
		}
	}
	return index
}

// tellCommit adds a commit hint to m, an answer to a candidate: the entry at Commit, of the
// term RejectHint, is committed. The library does the same with the same fields; this code
// is for nodes without it.
func (n *Node) tellCommit(m *raftpb.Message) {
	switch t := m.GetType(); {
	case t != raftpb.MsgVoteResp && t != raftpb.MsgPreVoteResp:
	case n.Options.Without.CommitHints:
		m.Commit, m.RejectHint = nil, nil
	case n.lease == nil || n.mistake() != NoMistake:
		// Applied entries are in the log on disk.
		index := n.raw.BasicStatus().Applied
		if term, err := n.disk.Term(index); err == nil && term > 0 {
			m.Commit, m.RejectHint = new(index), new(term)
		}
	}
}

// raiseCommit applies a commit hint in m if it covers a change of membership.
func (n *Node) raiseCommit(m *raftpb.Message) {
	if n.lease != nil {
		n.lease.RaiseCommit(n.raw, m)
		return
	}
	if t := m.GetType(); t != raftpb.MsgVoteResp && t != raftpb.MsgPreVoteResp {
		return
	}
	s, index := n.raw.BasicStatus(), m.GetCommit()
	if s.RaftState == raft.StateLeader || s.Lead != raft.None || index <= s.GetCommit() {
		return
	}
	if term, err := n.disk.Term(index); err != nil || term != m.GetRejectHint() {
		return
	}
	entries, err := n.disk.Entries(s.GetCommit()+1, index+1, noLimit)
	if err != nil || newestChange(entries) == 0 {
		return
	}
	must(n.raw.Step(&raftpb.Message{ // raft compares index and term with its own log
		Type: raftpb.MsgApp.Enum(), From: new(m.GetFrom()), To: new(n.ID), Term: new(s.GetTerm()),
		Index: new(index), LogTerm: new(m.GetRejectHint()), Commit: new(index),
	}))
	must(n.raw.ForgetLeader())
}

const noLimit = 1 << 40
