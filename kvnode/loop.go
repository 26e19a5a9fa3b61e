package kvnode

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// maxTurn bounds how many messages are taken before raft is asked what is
// ready: more per turn is more per sync, but a tick must not wait.
const maxTurn = 512

// run is the raft loop. Nobody else touches the RawNode, so raft needs no lock, and what
// others want of it they put into n.calls.
//
// One turn takes whatever has arrived (a tick, messages, answers of the appender and the
// applier, calls) and asks raft once what to do about all of it. Proposals come last: what
// raft has just learnt says whether this member still leads. The loop never waits for a
// disk, a peer or the applier; if it did, heartbeats would be late by as much, and the
// lease would be lost.
func (n *Node) run() {
	ticker := time.NewTicker(n.cfg.TickInterval)
	defer ticker.Stop()
	// Whatever ends the loop, no lease outlives it (L7).
	defer n.lease.Close()
	n.handleReadys()
	for {
		select {
		case <-n.stopping:
			return
		case due := <-ticker.C:
			n.late.note(time.Since(due))
			n.tick()
		case rctx := <-n.lease.ReadRequests():
			n.loop.raw.ReadIndex(rctx)
		case m := <-n.urgent:
			n.step(m)
		case m := <-n.bulk:
			n.step(m)
		case <-n.wake:
		}
		n.drain()
		n.handleReadys()
		if n.mayPropose() {
			n.takeProposals()
		}
		n.offer()
		n.handleReadys()
	}
}

// drain takes what has arrived meanwhile, so that one Ready answers all of it.
func (n *Node) drain() {
	l := &n.loop
	l.responses = n.local.take(l.responses)
	for _, m := range l.responses {
		n.stepLocal(m)
	}
	l.run = n.calls.take(l.run)
	for _, call := range l.run {
		call(l)
	}
	for range maxTurn {
		select {
		case m := <-n.urgent:
			n.step(m)
			continue
		default:
		}
		select {
		case m := <-n.bulk:
			n.step(m)
			continue
		default:
		}
		break
	}
}

// tick lets time pass for raft, unless the lease withholds the tick: raft would elect a
// member that is a quorum by itself without asking anybody, bound or not (V5). A member that
// too few have admitted does not tick either.
func (n *Node) tick() {
	if n.lease.Tick() && n.loop.admission.IsOpen() {
		n.loop.raw.Tick()
	}
	n.admissionTick()
	if n.disk.check() {
		n.stepAside()
	}
	n.loop.offers.own = n.waiters.awaited(n.loop.offers.own)
	n.loop.offers.full = false
}

// step ignores raft's errors as every embedder does: raft drops what it cannot
// use. The lease has seen m on arrival (peers.Receive).
func (n *Node) step(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgProp {
		n.forwarded(m)
		return
	}
	if !n.loop.admission.IsOpen() {
		return // a first start that nobody has admitted yet
	}
	if err := n.plausible(m); err != nil {
		n.implausible(m, err)
		return
	}
	n.loop.admission.Heard(m, n.Term())
	n.vouched.answer(m)
	n.learnCommit(m)
	_ = n.loop.raw.Step(m)
}

// stepLocal steps what the appender and the applier answer. Raft counts on each of these
// answers, in their order: without one it would wait for ever for what it takes to be under
// way. So they come through a box without a bound, and not through a channel.
func (n *Node) stepLocal(m *raftpb.Message) {
	if err := n.loop.raw.Step(m); err != nil {
		n.log.Debug("raft refused a local answer", "type", m.GetType(), "error", err)
		return
	}
	switch entries := m.GetEntries(); {
	case m.GetType() == raftpb.MsgStorageApplyResp && len(entries) > 0:
		n.loop.offers.full = false // less is uncommitted, as raft counts it
		n.tell(entries[len(entries)-1].GetIndex())
	case m.GetType() == raftpb.MsgStorageAppendResp && m.GetSnapshot() != nil:
		n.tell(m.GetSnapshot().GetMetadata().GetIndex())
	}
}

// tell notes that raft knows index to be applied. It never sinks: answers for a snapshot and
// for entries before it may come in either order.
func (n *Node) tell(index uint64) { n.told.Store(max(index, n.told.Load())) }

// handleReadys goes on until raft has nothing to say: handling one Ready may bring about
// the next.
func (n *Node) handleReadys() {
	for n.loop.raw.HasReady() {
		n.handleReady()
	}
}

// handleReady gives the lease the first look, then sends, then hands what is to
// be kept and what is to be applied to their goroutines.
//
// The lease comes first since it takes messages away that its promises forbid (a vote, most
// of all) and stamps heartbeats with the instant of their sending: what is sent without it
// may help elect a leader beside a valid lease. Messages that say what this member has on
// its disk are not among those sent here: raft attaches them to the append message, and
// they go out once that is durable (appended).
func (n *Node) handleReady() {
	rd := n.loop.raw.Ready()
	n.lease.Ready(&rd)
	n.follow(&rd)
	var appendMsg, applyMsg *raftpb.Message
	out := n.loop.outbox[:0]
	for _, m := range rd.Messages {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			n.tellCommit(m.GetResponses()) // raft answers candidates behind what it writes
			appendMsg = m
		case m.GetTo() == raft.LocalApplyThread:
			applyMsg = m
		case m.GetType() == raftpb.MsgSnap:
			n.snapshots.send(m)
		default:
			out = append(out, m)
		}
	}
	// The peers write while this member does.
	n.links.Send(out)
	clear(out)
	n.loop.outbox = out
	if appendMsg != nil {
		n.append(appendMsg)
	}
	if applyMsg != nil {
		n.applies.put(applyJob{entries: applyMsg.GetEntries(), responses: applyMsg.GetResponses()})
	}
}

// follow takes over what raft says about role, term and log, for those who ask without
// going through the loop. It runs before anything of the Ready is sent or written, so a
// reign is known to be over before anybody can hear of the next one from this member.
func (n *Node) follow(rd *raft.Ready) {
	was := n.Term()
	if !raft.IsEmptyHardState(rd.HardState) {
		n.term.Store(rd.HardState.GetTerm())
		n.loop.commit = rd.HardState.GetCommit()
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		n.last.Store(rd.Snapshot.GetMetadata().GetIndex())
		n.loop.restored = rd.Snapshot.GetMetadata().GetIndex()
	}
	if len(rd.Entries) > 0 {
		n.last.Store(rd.Entries[len(rd.Entries)-1].GetIndex())
	}
	lead := n.Leader()
	if rd.SoftState != nil {
		n.loop.role, lead = rd.RaftState, rd.Lead
	}
	// The same member may lead again, and have forgotten what it was handed before.
	if lead != n.Leader() || lead != raft.None && n.Term() != was {
		n.followLeader(lead)
	}
}

// followLeader notes that a reign has begun, or that one is over. Proposals that raft had
// taken are failed then with ErrLeaderChanged, which says that they may still take effect.
func (n *Node) followLeader(lead uint64) {
	old := n.Leader()
	n.log.Info("leader", "leader", n.book.called(lead), "was", n.book.called(old), "term", n.Term(), "role", n.loop.role.String())
	n.loop.admission.LeaderIs(lead)
	n.setLeader(lead)
	n.loop.offers.full = false
	// What was handed to the old leader may be lost on the way.
	if old != raft.None {
		n.waiters.failProposed(ErrLeaderChanged)
	}
}
