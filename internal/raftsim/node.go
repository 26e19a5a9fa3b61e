package raftsim

import (
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
