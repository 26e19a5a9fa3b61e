package raftsim

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// sim is one simulation under way.
type sim struct {
	cfg    Config
	w      swarm
	rng    *rand.Rand
	torn   *rand.Rand // for torn writes and forgotten commit indexes only
	now    time.Duration
	agenda agenda
	trace  trace
	res    *Result

	nodes  []*node // by ID - 1
	net    network
	judge  judge
	oper   operator
	load   load
	healed bool
}

// Run simulates a cluster with faults drawn from cfg.Seed and returns what was
// seen. It stops at the first violation and does not fail the test by itself.
// Raft's randomness is pinned for the whole process, so simulations do not run in
// parallel.
func Run(t *testing.T, cfg Config) *Result {
	t.Helper()
	cryptotest.SetGlobalRandom(t, cfg.Seed)
	s := newSim(cfg.withDefaults())
	s.guarded(s.build)
	s.runUntil(s.cfg.Duration, s.violated)
	s.guarded(s.heal)
	s.runUntil(s.now+recovery, func() bool { return s.violated() || s.recovered() })
	s.guarded(s.judgeEnd)
	s.res.Count.Virtual = s.now
	s.res.Hash = s.trace.hash
	s.res.trace = s.trace.last()
	return s.res
}

func newSim(cfg Config) *sim {
	r := rand.New(rand.NewPCG(cfg.Seed, 0x7261667473696d))
	s := &sim{cfg: cfg, rng: r, w: drawSwarm(r), res: &Result{Seed: cfg.Seed}}
	s.torn = rand.New(rand.NewPCG(cfg.Seed, 0x746f726e))
	s.w.drawTorn(s.torn)
	s.trace.keep = cfg.Trace
	s.net.s = s
	s.judge.init(s)
	s.oper.s = s
	return s
}

// guarded turns a panic of raft, or of the simulator, into a violation, and runs
// nothing after one.
func (s *sim) guarded(f func()) {
	if s.violated() {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			s.violate("panic", "%v", p)
			if s.trace.keep > 0 {
				s.note(nil, "%s", debug.Stack())
			}
		}
	}()
	f()
}

func (s *sim) violated() bool { return s.res.Violation != nil }

func (s *sim) violate(kind, format string, args ...any) {
	if s.violated() || kind == s.cfg.Tolerate {
		return
	}
	s.res.Violation = &Violation{Kind: kind, At: s.now, Text: fmt.Sprintf(format, args...)}
	s.note(nil, "VIOLATION %s: %s", kind, s.res.Violation.Text)
}

// after schedules f in d.
func (s *sim) after(d time.Duration, f func()) { s.agenda.add(s.now+max(d, 0), f) }

// every runs f again and again, at intervals around mean.
func (s *sim) every(mean time.Duration, f func()) {
	s.after(soon(s.rng, mean), func() {
		f()
		s.every(mean, f)
	})
}

func (s *sim) runUntil(end time.Duration, done func() bool) {
	for !done() && len(s.agenda.heap) > 0 && s.agenda.heap[0].at <= end {
		e := s.agenda.next()
		s.now = e.at
		s.guarded(e.run)
	}
	if !done() {
		s.now = end
	}
}

func (s *sim) build() {
	s.note(nil, "rules %+v, swarm %+v", s.cfg.Rules, s.w)
	conf := &raftpb.ConfState{}
	for range s.w.voters {
		conf.Voters = append(conf.Voters, s.addNode().id)
	}
	for range s.w.learners {
		conf.Learners = append(conf.Learners, s.addNode().id)
	}
	s.judge.bootstrap(conf)
	for _, n := range s.nodes {
		n.disk.bootstrap(conf)
		n.start()
	}
	s.startLoad()
	s.every(s.w.changeEvery, s.oper.change)
	s.every(50*time.Millisecond, s.oper.tidy)
	s.every(s.w.faultEvery, s.fault)
	s.planTearing()
}

func (s *sim) addNode() *node {
	n := &node{s: s, id: uint64(len(s.nodes) + 1)}
	n.disk = newDisk(n)
	s.nodes = append(s.nodes, n)
	return n
}

func (s *sim) node(id uint64) *node {
	if id == 0 || id > uint64(len(s.nodes)) {
		return nil
	}
	return s.nodes[id-1]
}

// randomNode draws a running node that matches want, nil if there is none.
func (s *sim) randomNode(want func(*node) bool) *node {
	var found []*node
	for _, n := range s.nodes {
		if n.p != nil && (want == nil || want(n)) {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[s.rng.IntN(len(found))]
}

// event is something that happens at an instant of virtual time. Events of one
// instant happen in the order in which they were planned.
type event struct {
	at  time.Duration
	seq uint64
	run func()
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.seq < f.seq
}

// agenda is a heap of events, the next one first.
type agenda struct {
	heap []event
	seq  uint64
}

func (a *agenda) add(at time.Duration, run func()) {
	a.seq++
	a.heap = append(a.heap, event{at: at, seq: a.seq, run: run})
	for i := len(a.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !a.heap[i].before(&a.heap[parent]) {
			return
		}
		a.heap[i], a.heap[parent] = a.heap[parent], a.heap[i]
		i = parent
	}
}

// next removes the earliest event. The agenda of a simulation is never empty.
func (a *agenda) next() event {
	first := a.heap[0]
	last := len(a.heap) - 1
	a.heap[0] = a.heap[last]
	a.heap[last] = event{}
	a.heap = a.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && a.heap[child+1].before(&a.heap[child]) {
			child++
		}
		if !a.heap[child].before(&a.heap[i]) {
			return first
		}
		a.heap[i], a.heap[child] = a.heap[child], a.heap[i]
		i = child
	}
}
