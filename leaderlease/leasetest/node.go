package leasetest

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// Node is one member: a process that can be paused, killed and restarted, on a
// machine with a clock and a disk.
type Node struct {
	ID    uint64
	Clock *Clock
	// Options may be changed while the node runs. A new Kind or Async is that of
	// the next process.
	Options NodeOptions

	cluster *Cluster
	disk    Disk

	// The process. Each start and each crash increments run, so that callbacks of an earlier
	// process are recognized.
	up     bool
	paused bool
	run    int
	raw    *raft.RawNode
	lease  *leaderlease.Lease // nil for other kinds
	role   raft.StateType
	term   uint64
	lead   uint64
	// detector is nil without Options.Suspects. polling is set while a Poll is scheduled.
	detector *detector.Detector
	polling  bool
	// notice is the message of the newest death notice. It waits until the detector lets the
	// node campaign.
	notice *raftpb.Message

	machine Machine
	conf    *raftpb.ConfState
	// newest is the newest checkpoint of this process.
	newest *raftpb.Snapshot
	// allowed is the highest index that a durable machine may hold, known the highest index
	// that the log has durably recorded as committed.
	allowed, known uint64

	busy bool
	// lags is set while the node asks raft for no Ready, but hands requests to it.
	lags  bool
	inbox []func()
	// finished are the completions of writes that ended while the process was paused. It runs
	// them first when it resumes.
	finished []func()
	// missed counts ticks of a paused process.
	missed  int
	appends queue
	applies queue
	// superseded is the index of the newest snapshot that raft has restored. Raft has the
	// configuration of that snapshot, even if older entries are still to be applied.
	superseded uint64
	// confIndex is Config.ConfIndex of the Lease. handed is the index of the newest change
	// that raft has handed out, made of the newest that the node or a snapshot has applied.
	confIndex, handed, made uint64
	// told is the newest index that raft knows to be applied, tellAt when it is told the next.
	told   uint64
	tellAt time.Duration
	log    logView
	// began is the configuration that the log began with at the start.
	began *raftpb.ConfState
	// snapshots wait until the committed entries are applied.
	snapshots []*raftpb.Message
	// unsynced are writes under way, oldest first.
	unsynced []write
	losses   losses
	heldBack int

	writes map[uint64]func(version uint64)
	reads  stockReads
	// asked are the requests for a round that an old node has treated as ordinary reads. It
	// is nil on other nodes.
	asked map[string]bool
}

// start begins a process from the disk.
func (n *Node) start() {
	c := n.cluster
	n.run++
	n.up, n.paused, n.busy, n.lags, n.missed = true, false, false, false, 0
	n.inbox, n.finished, n.unsynced = nil, nil, nil
	n.appends, n.applies, n.superseded = queue{}, queue{}, 0
	n.confIndex, n.handed, n.made = 0, 0, 0
	n.snapshots = nil
	n.writes = make(map[uint64]func(uint64))
	n.reads = stockReads{seq: n.ID<<48 | uint64(n.Process())<<32} // an answer to another process's request is ignored
	n.lease, n.losses.tears = nil, tear{}
	n.newest = nil
	n.Clock.Restart()

	snap, err := n.disk.Snapshot()
	must(err)
	n.machine, err = n.machine.Reopen(snap)
	must(err)
	n.conf, n.began = n.machine.Conf(), snap.GetMetadata().GetConfState()
	n.allowed = max(n.allowed, snap.GetMetadata().GetIndex())
	rc := &raft.Config{
		ID: n.ID, ElectionTick: c.opts.ElectionTick, HeartbeatTick: c.opts.HeartbeatTick,
		Storage: n.recoverCommit(storage{n.disk, n}), Applied: n.applyFrom(), AsyncStorageWrites: n.Options.Async,
		MaxSizePerMsg: 1 << 16, MaxInflightMsgs: 64, MaxUncommittedEntriesSize: 1 << 20,
		PreVote: true, CheckQuorum: true, StepDownOnRemoval: true, Logger: c.opts.Logger,
	}
	if n.Options.Kind == Stock {
		rc.ReadOnlyOption = raft.ReadOnlyLeaseBased
	}
	c.opts.Raft(rc)
	n.openLog(rc.Applied)
	n.raw, err = raft.NewRawNode(rc)
	must(err)
	if n.Options.Kind == Library {
		cfg := leaderlease.Config{
			Raft: n.configOfLease(rc), TickInterval: c.opts.TickInterval, Clock: n.Clock, Promises: promises{n.disk, n},
			Send: func(msgs []*raftpb.Message) { n.send(msgs) },
		}
		n.confIndex = n.changesUpTo()
		cfg.ConfIndex = n.confIndex
		if c.opts.Configure != nil {
			c.opts.Configure(n.ID, &cfg)
		}
		n.lease, err = leaderlease.New(cfg)
		must(err)
		if n.confIndex > 0 {
			n.lease.Applied(n.Applied())
		}
	}
	n.detector, n.polling, n.lead, n.notice = n.newDetector(), false, 0, nil
	n.observe()
}

// scheduleTicks ticks by the node's own clock.
func (n *Node) scheduleTicks() {
	var due func()
	schedule := func() {
		rate := max(n.Clock.Rate(), 0.01)
		n.cluster.world.after(time.Duration(float64(n.cluster.opts.TickInterval)/rate), due)
	}
	due = func() {
		schedule()
		switch {
		case !n.up || n.Clock.stopped:
		case n.paused:
			n.missed++
		default:
			n.Tick()
		}
	}
	schedule()
}

func (n *Node) tick() {
	if n.lease == nil || n.lease.Tick() {
		if n.cluster.OnTick != nil {
			n.cluster.OnTick(n)
		}
		n.raw.Tick()
	}
	if n.detector != nil {
		n.elect(n.detector.Tick(n.wall(), n.standing()))
		n.pollSoon()
	}
}

// Tick gives the process a tick besides those of its clock.
func (n *Node) Tick() { n.exec(n.tick) }

// receive takes a message from the network.
func (n *Node) receive(m *raftpb.Message, from leaderlease.ProcessID) {
	if !n.up {
		return
	}
	n.unmark(m)
	if n.Options.FilterOnArrival && !n.paused && n.lease != nil {
		if !n.lease.Incoming(m, from) {
			return
		}
		if n.cluster.OnAdmit != nil {
			n.cluster.OnAdmit(n, m)
		}
		if d := n.stepDelay(m); d > 0 {
			n.later(d, func() { n.exec(func() { n.stepRaw(m) }) })
			return
		}
		n.exec(func() { n.stepRaw(m) })
		return
	}
	n.exec(func() { n.step(m, from) })
}

func (n *Node) stepDelay(m *raftpb.Message) time.Duration {
	if n.Options.StepDelay == nil {
		return 0
	}
	return n.Options.StepDelay(m)
}

// step handles a message from a peer as an embedder does.
func (n *Node) step(m *raftpb.Message, from leaderlease.ProcessID) {
	if n.lease != nil && !n.lease.Incoming(m, from) {
		return
	}
	if n.cluster.OnAdmit != nil {
		n.cluster.OnAdmit(n, m)
	}
	n.stepRaw(m)
}

func (n *Node) stepRaw(m *raftpb.Message) {
	if n.putsOff(m) || n.refuses(m) {
		return
	}
	n.raiseCommit(m)
	if n.detector != nil {
		n.elect(n.detector.Heard(m, n.term, n.wall()))
		n.pollSoon()
	}
	// Raft returns an error for a message that it ignores.
	_ = n.raw.Step(m)
	n.refused(m)
}

// exec runs f on the node's goroutine: now, or when the process is scheduled
// again and not busy.
func (n *Node) exec(f func()) {
	if !n.up {
		return
	}
	if n.paused || (n.busy && n.Options.QueueWhileBusy) {
		n.inbox = append(n.inbox, f)
		return
	}
	f()
	n.pump()
}

// later runs f in d, unless the process has died meanwhile.
func (n *Node) later(d time.Duration, f func()) {
	run := n.run
	n.cluster.world.after(d, func() {
		if n.run == run && n.up {
			f()
		}
	})
}

// drain runs what has queued up.
func (n *Node) drain() {
	for len(n.finished) > 0 && !n.paused && n.up {
		f := n.finished[0]
		n.finished = slices.Delete(n.finished, 0, 1)
		f()
		n.pump()
	}
	for len(n.inbox) > 0 && !n.paused && n.up && (!n.busy || !n.Options.QueueWhileBusy) {
		f := n.inbox[0]
		n.inbox = slices.Delete(n.inbox, 0, 1)
		f()
		// A loop with a queue drains it before it asks raft for a Ready, or it would
		// fall behind.
		if len(n.inbox) == 0 || !n.Options.QueueWhileBusy {
			n.pump()
		}
	}
}

// observe notices elections, at the instant they are won.
func (n *Node) observe() {
	if !n.up { // it has died in a write
		return
	}
	s := n.raw.BasicStatus()
	won := s.RaftState == raft.StateLeader && (n.role != raft.StateLeader || n.term != s.GetTerm())
	n.role, n.term = s.RaftState, s.GetTerm()
	if n.detector != nil && n.lead != s.Lead {
		n.lead = s.Lead
		n.detector.LeaderIs(n.lead, n.wall())
	}
	if won && n.cluster.OnLeader != nil {
		n.cluster.OnLeader(n, n.term)
	}
}

// Up reports whether the process runs, even if it is paused.
func (n *Node) Up() bool { return n.up }

// Paused reports whether the process is paused.
func (n *Node) Paused() bool { return n.paused }

// Process returns the number of the node's process: 1 before the first crash.
func (n *Node) Process() int { return (n.run + 1) / 2 }

// Role returns raft's role, Term its term.
func (n *Node) Role() raft.StateType { return n.role }

// Term returns raft's term.
func (n *Node) Term() uint64 { return n.term }

// Lease returns the node's Lease, nil for other kinds than Library.
func (n *Node) Lease() *leaderlease.Lease { return n.lease }

// Raw returns the node's RawNode. Call Kick after acting on it.
func (n *Node) Raw() *raft.RawNode { return n.raw }

// Valid reports whether the node would serve a lease read now. It has no side
// effect on the node except that it counts the check.
func (n *Node) Valid() bool {
	if n.lease == nil {
		return false
	}
	_, s := n.lease.TryRead()
	return s == leaderlease.StatusValid
}

// Bound reports whether a promise or the restart hold binds the node.
func (n *Node) Bound() bool {
	if n.lease == nil || !n.up {
		return false
	}
	p := n.lease.Info().Promise
	return p.Remaining > 0 || p.Hold > 0
}

// Conf returns the configuration the node has applied.
func (n *Node) Conf() *raftpb.ConfState { return n.conf }

// Applied returns the index the node has applied.
func (n *Node) Applied() uint64 { return n.machine.Applied() }

// Machine returns what the node applies its log to.
func (n *Node) Machine() Machine { return n.machine }

// Version returns the version of key in the node's state machine.
func (n *Node) Version(key uint64) uint64 {
	version, _ := n.machine.Read(key)
	return version
}

// Hash is equal on nodes whose state machines are equal.
func (n *Node) Hash() uint64 { return n.machine.Hash() }

func raftPanic(format string, args ...any) string { return "raft: " + fmt.Sprintf(format, args...) }

// maxBurst is how many ticks a process that was paused finds waiting: raft.Node
// buffers this many.
const maxBurst = 128

// Pause stops the process from being scheduled. Its clock goes on; messages
// and ticks wait.
func (n *Node) Pause() { n.paused = true }

// Resume schedules the process again. All the ticks it has missed come at once,
// before or after the messages that have queued up.
func (n *Node) Resume(ticksFirst bool) {
	if !n.up || !n.paused {
		return
	}
	n.paused = false
	burst := func() {
		for range min(n.missed, maxBurst) {
			n.exec(n.tick)
		}
		n.missed = 0
	}
	if ticksFirst {
		burst()
		n.drain()
		return
	}
	n.drain()
	burst()
	n.drain()
}

// Suspend stops the machine. stopClock says whether the lease clock stops with
// it, which CLOCK_MONOTONIC does and CLOCK_BOOTTIME does not.
func (n *Node) Suspend(stopClock bool) {
	n.Pause()
	if stopClock {
		n.Clock.Stop()
	}
}

// Wake resumes a suspended machine.
func (n *Node) Wake(ticksFirst bool) {
	n.Clock.Start()
	n.Resume(ticksFirst)
}

// Crash kills the process. Of the writes under way the oldest survive ones have
// reached the disk.
func (n *Node) Crash(survive int) { n.crash(survive, notTorn) }

// CrashTorn is Crash, except that the first entries of the next write have reached the
// disk without its hard state, if the disk can be torn.
func (n *Node) CrashTorn(survive, entries int) { n.crash(survive, max(entries, 0)) }

const notTorn = -1

// TearNext tears the next write with entries and a hard state for which match returns true:
// the process dies between the two, and crashed runs. TearNext applies until the process ends;
// a nil match cancels it. A disk that cannot be torn loses the whole write.
func (n *Node) TearNext(match func([]*raftpb.Entry) bool, crashed func()) {
	n.losses.tears = tear{match, crashed}
}

// crash is CrashTorn unless torn is notTorn.
func (n *Node) crash(survive, torn int) {
	if !n.up {
		return
	}
	n.land(min(survive, len(n.unsynced)), torn)
	n.up = false
	n.run++
	n.role = 0
	if n.cluster.OnCrash != nil {
		n.cluster.OnCrash(n)
	}
}

// Restart starts the process again from its disk.
func (n *Node) Restart() {
	if n.up {
		return
	}
	disk, err := n.disk.Reopen()
	must(err)
	n.disk = disk
	n.start()
	if n.cluster.OnRestart != nil {
		n.cluster.OnRestart(n)
	}
}

// land writes the oldest survive writes to the disk, and a part of the next one. If torn is not
// notTorn, that part is its first torn entries without the hard state. Otherwise it is sometimes
// its snapshot, which reaches the machine but not the log.
func (n *Node) land(survive, torn int) {
	for i := range survive {
		if n.save(n.unsynced[i]) != nil {
			return
		}
	}
	if survive == len(n.unsynced) {
		return
	}
	next := n.unsynced[survive]
	switch {
	case torn != notTorn:
		next.entries = next.entries[:min(torn, len(next.entries))]
		n.saveTorn(next)
	case next.snap.GetMetadata().GetIndex()%2 == 1:
		_ = n.install(next.snap) // it dies anyway
	}
}

// Unsynced returns the number of writes under way.
func (n *Node) Unsynced() int { return len(n.unsynced) }
