package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// Config chooses a simulation. Only Seed is required.
type Config struct {
	// Seed decides everything that happens.
	Seed uint64
	// Duration is how much time is simulated before the cluster is healed;
	// default 3 minutes.
	Duration time.Duration
	// Schedule replays a schedule instead of drawing one from Seed.
	Schedule *Schedule
	// Amend may change the drawn schedule, for instance to break an assumption.
	Amend func(*Schedule)
	// Configure may amend the lease configuration of a node, NewDisk replace
	// its disk and NewMachine its machine, as in Options.
	Configure  func(id uint64, cfg *leaderlease.Config)
	NewDisk    func(id uint64, conf *raftpb.ConfState) leasetest.Disk
	NewMachine func(id uint64, conf *raftpb.ConfState) leasetest.Machine
	// Compact is how often, on average, a node compacts its log by itself.
	// Default: never, only the compact fault does.
	Compact time.Duration
	// Messages keeps every message in the time line.
	Messages bool
	// IndexReads makes every read a ReadIndex read, which must be right with any clocks.
	// Leases are not checked.
	IndexReads bool
	// Node may amend the options of a node. With Misused, nodes may embed their Lease wrongly.
	// Then stale reads are still violations, but missing leases and single decisions are not.
	Node    func(id uint64, o *leasetest.NodeOptions)
	Misused bool
	// SkipGuard turns the guard oracle off, which checks single decisions. The other oracles
	// check consequences.
	SkipGuard bool
	// Trace records the trace of every Lease and checks it with package leasetrace.
	Trace bool
}

// sim is one simulation under way.
type sim struct {
	cfg   Config
	sched *Schedule
	w     *Swarm
	c     *leasetest.Cluster
	trace trace
	res   *Result

	versions versionOracle
	leases   leaseOracle
	raft     raftOracle
	linear   linearOracle
	traces   traceOracle
	lines    lines
	operator operator

	load   load
	clocks *rand.Rand
	// By node: how many faults keep it paused, until when its disk stalls and it
	// is slow to apply, how long votes wait between filter and raft, and what
	// part of Duration it is configured with.
	pauses    map[uint64]int
	dead      map[uint64][]leaderlease.ProcessID // the newest dead processes
	stalled   map[uint64]time.Duration
	slowApply map[uint64]time.Duration
	slowVotes map[uint64]time.Duration
	scale     map[uint64]float64
	// onSave is called when a node begins to save another longest promise.
	onSave func(id uint64)
	// slowCandidates is the time until which the disks of candidates are slow.
	slowCandidates time.Duration
	healed         bool
	// mistrusted: a voter's clock stood still, which leaders may have noticed.
	mistrusted bool
}

// Run runs a cluster with faults drawn from cfg.Seed and returns what was
// seen. It stops at the first violation and does not fail the test by itself:
// see Result.Require. Raft's randomness is pinned for the whole process, so
// simulations do not run in parallel.
func Run(t *testing.T, cfg Config) *Result {
	t.Helper()
	s := newSim(cfg)
	cryptotest.SetGlobalRandom(t, s.sched.Seed)
	s.guarded(s.run)
	s.guarded(s.finish)
	s.judgeTraces()
	s.res.Hash = s.trace.hash
	return s.res
}

func newSim(cfg Config) *sim {
	sched := cfg.Schedule
	if sched == nil {
		d := cfg.Duration
		if d == 0 {
			d = 3 * time.Minute
		}
		sched = DrawSchedule(cfg.Seed, d)
	}
	if cfg.Amend != nil {
		cfg.Amend(sched)
	}
	s := &sim{
		cfg: cfg, sched: sched, w: &sched.Swarm,
		res:       &Result{Seed: sched.Seed, Schedule: sched},
		clocks:    stream(sched.Seed, streamClocks),
		pauses:    make(map[uint64]int),
		dead:      make(map[uint64][]leaderlease.ProcessID),
		stalled:   make(map[uint64]time.Duration),
		slowApply: make(map[uint64]time.Duration),
		slowVotes: make(map[uint64]time.Duration),
		scale:     make(map[uint64]float64),
	}
	s.trace.messages = cfg.Messages
	s.res.trace = &s.trace
	s.versions.init()
	s.leases.init()
	s.raft.init()
	s.linear.init()
	s.traces.init()
	s.load.init(sched.Seed)
	return s
}

// guarded turns a panic of raft, of the library or of the simulator into a
// violation, and runs nothing after one.
func (s *sim) guarded(f func()) {
	if s.violated() {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			s.violate("panic", 0, fmt.Sprintf("%v\n%s", p, debug.Stack()))
		}
	}()
	f()
}

func (s *sim) run() {
	s.build()
	s.redrawClocks()
	for _, f := range s.sched.Faults {
		s.c.After(f.At, func() { s.inject(f) })
	}
	s.startLoad()
	s.advance(s.sched.Duration)
}

// advance lets d pass, or less if a violation ends the run.
func (s *sim) advance(d time.Duration) {
	s.c.RunUntil(d, s.violated)
	s.res.Elapsed = s.c.Now()
}

func (s *sim) build() {
	w := s.w
	var ids [3][]uint64
	id := uint64(0)
	for i, n := range []int{w.Voters, w.Learners, w.Spares} {
		for range n {
			id++
			ids[i] = append(ids[i], id)
		}
	}
	s.c = leasetest.New(leasetest.Options{
		Voters: ids[0], Learners: ids[1], Spares: ids[2],
		TickInterval: w.Tick, ElectionTick: w.ElectionTick, HeartbeatTick: w.HeartbeatTick,
		Configure: s.configure, Raft: s.amendRaft, Node: s.nodeOptions, NewDisk: s.newDisk, NewMachine: s.cfg.NewMachine,
	})
	s.lines.init(s)
	s.operator.conf = &raftpb.ConfState{Voters: ids[0], Learners: ids[1]}
	s.c.OnLeader, s.c.OnApply, s.c.OnCrash = s.onLeader, s.onApply, s.onCrash
	s.c.OnRestart = s.onRestart
	s.c.OnDeliver, s.c.OnAdmit, s.c.OnReady = s.onDeliver, s.onAdmit, s.onReady
	s.c.Net.OnSend = s.onSend
}

func (s *sim) newDisk(id uint64, conf *raftpb.ConfState) leasetest.Disk {
	if s.cfg.NewDisk != nil {
		return s.cfg.NewDisk(id, conf)
	}
	return s.w.diskKind(id).NewDisk(conf)
}

// observedStore is a node's PromiseStore that reports the beginning of each save.
type observedStore struct {
	leaderlease.PromiseStore
	s  *sim
	id uint64
}

// Run implements hook.Saver.
func (p observedStore) Run(save hook.Save) {
	p.s.res.Saves++
	saver, ok := p.PromiseStore.(hook.Saver)
	if !ok {
		panic(fmt.Sprintf("sim: a %T runs no saves", p.PromiseStore))
	}
	saver.Run(save)
	if p.s.onSave != nil {
		p.s.onSave(p.id)
	}
}

func (s *sim) configure(id uint64, cfg *leaderlease.Config) {
	w := s.w
	cfg.Duration, cfg.MaxClockSkew, cfg.MaxDriftPPM = w.D, w.Skew, max(w.DriftPPM, 1)
	cfg.AllowLongDuration = w.LongD
	if has(w.Short, id) {
		cfg.MaxPromise = w.D
		cfg.Duration, cfg.MaxClockSkew = w.shortD(), driftSkew(w.shortD(), w.DriftPPM)
	}
	cfg.Promises = observedStore{cfg.Promises, s, id}
	if d := time.Duration(s.scale[id] * float64(w.D)); d-driftSkew(d, w.DriftPPM) > 2*s.beat() {
		cfg.Duration, cfg.MaxClockSkew = d, driftSkew(d, w.DriftPPM)
	}
	if w.NoMargin {
		cfg.MaxClockSkew, cfg.MaxDriftPPM = driftSkew(w.D, 1), 1
	}
	if s.cfg.Trace {
		cfg.Tracer = s.traces.begin(id)
	}
	if s.cfg.Configure != nil {
		s.cfg.Configure(id, cfg)
	}
}

func (s *sim) nodeOptions(id uint64) leasetest.NodeOptions {
	w := s.w
	o := leasetest.NodeOptions{Async: has(w.Async, id), QueueWhileBusy: has(w.Queue, id), FilterOnArrival: has(w.Arrival, id)}
	o.Suspects = has(w.Suspects, id)
	if has(w.Learns, id) {
		o.Learn = 20 * s.beat() // faults are seconds apart
	}
	o.Without = w.omitted()
	switch {
	case has(w.Stock, id):
		o.Kind = leasetest.Stock
	case w.RaftAlone || has(w.Plain, id):
		o.Kind = leasetest.Plain
	}
	delays := stream(s.sched.Seed, streamDisk+id<<8)
	o.DiskDelay = func() time.Duration {
		d := between(delays, 0, w.Disk)
		if role := s.c.Node(id).Role(); s.c.Now() < s.slowCandidates && role == raft.StateCandidate {
			d += between(delays, 0, w.D)
		}
		return max(d, s.stalled[id]-s.c.Now())
	}
	o.ApplyDelay = func() time.Duration {
		return max(between(delays, 0, w.Apply), s.slowApply[id]-s.c.Now())
	}
	if w.RaftAlone {
		o.TellDelay = func() time.Duration {
			switch {
			case s.healed:
				return 0
			case delays.IntN(100) < w.SlowTell:
				return between(delays, 0, 3*w.electionTimeout())
			default:
				return between(delays, 0, w.Tell)
			}
		}
	}
	o.StepDelay = func(m *raftpb.Message) time.Duration {
		if m.GetType() == raftpb.MsgVote && s.slowVotes[id] > 0 {
			return s.slowVotes[id]
		}
		return between(delays, 0, w.Step)
	}
	if s.cfg.Node != nil {
		s.cfg.Node(id, &o)
	}
	return o
}

// redrawClocks gives every clock a new rate, often an extreme one.
func (s *sim) redrawClocks() {
	for _, n := range s.c.Nodes() {
		s.redrawClock(n, s.clocks)
	}
}

func (s *sim) redrawClock(n *leasetest.Node, r *rand.Rand) {
	rho := float64(s.w.DriftPPM+s.w.BeyondPPM) / 1e6
	rate := 1 + rho*pick(r, -1, 1, 0, 2*r.Float64()-1)
	n.Clock.SetRate(rate)
	s.trace.note(s.c.Now(), n.ID, "clock rate", "ppm", uint64(rate*1e6))
}
