package raftsim

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// node is a member: a disk, and now and then a process.
type node struct {
	s    *sim
	id   uint64
	disk *disk
	// run counts incarnations. Callbacks of an earlier one are dropped.
	run int
	p   *process // nil while it is down
	// off: the operator has switched it off, for good.
	off         bool
	pausedUntil time.Duration
}

// process is the state that a crash loses.
type process struct {
	raw  *raft.RawNode
	hard hardState
	soft raft.SoftState
	log  logView

	machine machine
	// told is up to where raft knows that entries are applied; restored is the
	// newest snapshot that raft has accepted from a leader.
	told, restored uint64
	applies        []*raftpb.Message
	applying       bool
	checkpointing  bool
	// tellLate: raft is told late what is applied.
	tellLate time.Duration

	waiting map[uint64]bool   // proposals made here
	reads   map[uint64]uint64 // by request: what the answer must not be below
}

// start begins an incarnation with what the disk has.
func (n *node) start() {
	if n.p != nil || n.off {
		return
	}
	n.run++
	n.s.res.Count.Restarts++
	p := &process{waiting: make(map[uint64]bool), reads: make(map[uint64]uint64), hard: n.disk.hard}
	snap, err := n.disk.log.Snapshot()
	must(err)
	p.machine.restore(snap)
	p.told, p.restored = p.machine.applied, p.machine.applied
	p.log.load(n.disk.log)
	n.p = p
	n.pausedUntil = 0
	n.s.note(n, "starts: term %d vote %d commit %d applied %d last %d", n.disk.hard.term, n.disk.hard.vote, n.disk.hard.commit, p.machine.applied, p.log.last())
	n.s.judge.started(n)
	w := &n.s.w
	store := n.recoverCommit(storage{n.disk.log, n})
	p.raw, err = raft.NewRawNode(&raft.Config{
		ID: n.id, ElectionTick: electionTick, HeartbeatTick: w.heartbeatTick,
		Storage: store, Applied: p.machine.applied, AsyncStorageWrites: true,
		MaxSizePerMsg: w.maxSize, MaxCommittedSizePerReady: w.maxCommitted, MaxInflightMsgs: w.maxInflight,
		CheckQuorum: w.checkQuorum, PreVote: w.preVote, StepDownOnRemoval: true, Logger: &logger{n.s, n},
	})
	must(err)
	n.later(between(n.s.rng, 0, tick), n.tick)
	n.pump()
}

// recoverCommit is the rule RecoverCommit.
func (n *node) recoverCommit(s raft.Storage) raft.Storage {
	if !n.s.cfg.Rules.RecoverCommit {
		return s
	}
	s = leaderlease.RecoverCommit(s)
	hard, _, err := s.InitialState()
	must(err)
	if commit := hard.GetCommit(); commit > n.disk.hard.commit {
		n.s.res.Count.Recovered++
		n.s.note(n, "knows by its log that %d is committed", commit)
		n.s.judge.recovered(n, commit)
		n.p.hard.commit = commit
	}
	return s
}

// crash ends the process.
func (n *node) crash() {
	if n.p == nil {
		return
	}
	n.s.note(n, "CRASHES with %d writes under way; durable: term %d vote %d commit %d last %d", len(n.disk.queue), n.disk.hard.term, n.disk.hard.vote, n.disk.hard.commit, n.disk.last())
	n.s.res.Count.Crashes++
	n.p = nil
	n.disk.crash()
	n.s.trace.mix(uint64(n.s.now), n.id, uint64(n.run))
}

// restartAfter starts the member again, unless it is switched off.
func (n *node) restartAfter(d time.Duration) { n.s.after(d, n.start) }

// later runs f in this incarnation, on the node's own thread: not while it is
// paused.
func (n *node) later(d time.Duration, f func()) {
	run := n.run
	n.s.after(d, func() { n.resume(run, f) })
}

func (n *node) resume(run int, f func()) {
	switch {
	case n.p == nil || n.run != run:
	case n.s.now < n.pausedUntil:
		n.s.after(n.pausedUntil-n.s.now, func() { n.resume(run, f) })
	default:
		f()
	}
}

func (n *node) tick() {
	n.later(tick, n.tick)
	n.p.raw.Tick()
	n.pump()
}

// step hands a message to raft, which may refuse it.
func (n *node) step(m *raftpb.Message) {
	_ = n.p.raw.Step(m)
	n.pump()
}

// leads reports whether the node believes that it leads.
func (n *node) leads() bool { return n.p != nil && n.p.soft.RaftState == raft.StateLeader }

func (n *node) campaign() {
	if n.p == nil {
		return
	}
	n.s.note(n, "is told to campaign")
	_ = n.p.raw.Campaign()
	n.pump()
}

// maxTurns is far above the number of Readys that one event can cause.
const maxTurns = 10_000

// pump handles everything that raft has ready.
func (n *node) pump() {
	for turns := 0; n.p != nil && n.p.raw.HasReady(); turns++ {
		if turns > maxTurns {
			panic(fmt.Sprintf("node %d has been ready %d times in no time", n.id, turns))
		}
		n.ready(n.p.raw.Ready())
	}
}

// ready handles a Ready as raft documents it: its messages leave in their order,
// and the MsgStorageAppend comes after those for the network.
func (n *node) ready(rd raft.Ready) {
	n.p.log.append(rd.Snapshot, rd.Entries)
	n.s.judge.ready(n, rd)
	if !raft.IsEmptySnap(rd.Snapshot) {
		n.p.restored = rd.Snapshot.GetMetadata().GetIndex()
	}
	n.s.readStates(n, rd.ReadStates)
	msgs := rd.Messages
	if n.s.cfg.Rules.HoldVotes {
		msgs = n.holdVotes(msgs)
	}
	var held []*raftpb.Message
	for _, m := range msgs {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			n.disk.push(&write{m: m})
		case m.GetTo() == raft.LocalApplyThread:
			n.p.applies = append(n.p.applies, m)
			n.applyNext()
		case n.holdsAppend(m):
			held = append(held, m)
		default:
			n.s.net.send(n, m)
		}
	}
	if len(held) > 0 {
		n.s.res.Count.HeldAppends += len(held)
		n.disk.push(&write{done: func() { n.respond(held) }})
	}
}

// holdsAppend is the rule HoldAppends: while a change of configuration is under
// way, a leader's entries leave when they are durable.
func (n *node) holdsAppend(m *raftpb.Message) bool {
	if !n.s.cfg.Rules.HoldAppends || m.GetType() != raftpb.MsgApp || !n.changes() {
		return false
	}
	return n.forgettable(m).entry
}

// changes reports whether a change of configuration is under way, as far as n
// knows.
func (n *node) changes() bool {
	return len(n.p.machine.conf.GetVotersOutgoing()) > 0 || n.changePending()
}

// changePending reports whether the log has a change that is not applied.
func (n *node) changePending() bool {
	return n.p.log.firstConf(n.p.machine.applied, n.p.log.last()) > 0
}

// holdVotes is rule V9: a MsgVote leaves with the responses of its Ready's
// MsgStorageAppend. There is always one, since the term has changed.
func (n *node) holdVotes(msgs []*raftpb.Message) []*raftpb.Message {
	var votes, rest []*raftpb.Message
	var appends *raftpb.Message
	for _, m := range msgs {
		if m.GetType() == raftpb.MsgVote {
			votes = append(votes, m)
			continue
		}
		if m.GetTo() == raft.LocalAppendThread {
			appends = m
		}
		rest = append(rest, m)
	}
	if len(votes) == 0 {
		return msgs
	}
	if appends == nil {
		panic("MsgVote without MsgStorageAppend")
	}
	n.s.res.Count.HeldVotes += len(votes)
	appends.Responses = slices.Concat(votes, appends.GetResponses())
	return rest
}

// written is called when w is durable: its responses follow, in order, a moment
// later.
func (n *node) written(w *write) {
	if w.done != nil {
		w.done()
		return
	}
	if snap := w.m.GetSnapshot(); !raft.IsEmptySnap(snap) && snap.GetMetadata().GetIndex() > n.p.machine.applied {
		n.p.machine.restore(snap)
		n.s.judge.applied(n)
	}
	if len(w.m.GetResponses()) == 0 {
		return
	}
	n.disk.answers = append(n.disk.answers, w.m.GetResponses())
	n.later(soon(n.s.rng, n.s.w.disk/8), func() {
		answers := n.disk.answers[0]
		n.disk.answers = n.disk.answers[1:]
		n.respond(answers)
	})
}

func (n *node) respond(msgs []*raftpb.Message) {
	for _, m := range msgs {
		switch {
		case n.p == nil:
			return
		case m.GetTo() == n.id:
			n.judgeOwn(m)
			n.step(m)
		default:
			n.s.net.send(n, m)
		}
	}
}

// judgeOwn checks a member's responses to itself: a candidate's own vote and a leader's own
// append count like those of others.
func (n *node) judgeOwn(m *raftpb.Message) {
	switch m.GetType() {
	case raftpb.MsgVoteResp, raftpb.MsgAppResp:
		n.s.judge.durable(n, m)
	case raftpb.MsgStorageAppendResp:
		if snap := m.GetSnapshot(); !raft.IsEmptySnap(snap) {
			n.p.told = max(n.p.told, snap.GetMetadata().GetIndex())
		}
	default:
	}
}
