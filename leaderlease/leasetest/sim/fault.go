package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// faultKind is one way to make things go wrong.
type faultKind struct {
	name   string
	weight int
	// min and max bound Fault.For, in election timeouts.
	min, max float64
	do       func(f *fault)
}

// faultKinds lists all kinds that are drawn together. Their order is part of what a seed means.
var faultKinds = slices.Concat(processFaults, clockFaults, networkFaults, clusterFaults, connFaults, recipes, resignFaults)

func kindOf(name string) *faultKind {
	for _, kinds := range [][]faultKind{faultKinds, tornFaults, deathFaults, raftFaults} {
		for i := range kinds {
			if kinds[i].name == name {
				return &kinds[i]
			}
		}
	}
	return nil
}

// fault is a Fault while it is done.
type fault struct {
	Fault
	*sim
	r *rand.Rand
	// tears says which of its crashes tear a Ready.
	tears *rand.Rand
}

// drawFaults draws which kinds are active and then the faults.
func (s *Schedule) drawFaults(r *rand.Rand) {
	var active []faultKind
	for _, k := range faultKinds {
		if r.IntN(5) < 3 {
			active = append(active, k)
		}
	}
	s.addFaults(r, active, s.Swarm.Gap)
}

// addFaults draws faults of the given kinds, gap apart on average.
func (s *Schedule) addFaults(r *rand.Rand, kinds []faultKind, gap time.Duration) {
	et, n, total := float64(s.Swarm.electionTimeout()), 0, 0
	for _, f := range s.Faults {
		n = max(n, f.N)
	}
	for i := range kinds {
		total += kinds[i].weight
	}
	for at := between(r, time.Second, 2*gap); at < s.Duration && total > 0; at += time.Duration(r.ExpFloat64() * float64(gap)) {
		k := draw(r, kinds, total)
		n++
		s.Faults = append(s.Faults, Fault{N: n, At: at, Kind: k.name, For: between(r, time.Duration(k.min*et), time.Duration(k.max*et))})
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

func draw(r *rand.Rand, kinds []faultKind, total int) *faultKind {
	n := r.IntN(total)
	for i := range kinds {
		if n -= kinds[i].weight; n < 0 {
			return &kinds[i]
		}
	}
	panic("sim: weights do not add up")
}

func (s *sim) inject(spec Fault) {
	f := &fault{
		Fault: spec, sim: s, r: stream(s.sched.Seed, streamFault+uint64(spec.N)),
		tears: stream(s.sched.Seed, streamTears+uint64(spec.N)),
	}
	s.trace.note(s.c.Now(), 0, "fault "+spec.Kind, "n ms", uint64(spec.N), uint64(spec.For.Milliseconds()))
	if s.res.Faults == nil {
		s.res.Faults = make(map[string]int)
	}
	s.res.Faults[spec.Kind]++
	kindOf(spec.Kind).do(f)
}

// note writes what the fault decided into the time line.
func (f *fault) note(n *leasetest.Node, what string) {
	f.trace.note(f.c.Now(), n.ID, what, "fault", uint64(f.N))
}

// after runs do in d, unless the run is over.
func (f *fault) after(d time.Duration, do func()) {
	f.c.After(d, func() {
		if !f.healed && !f.violated() {
			do()
		}
	})
}

// any returns a random node that matches, or nil.
func (f *fault) any(match func(*leasetest.Node) bool) *leasetest.Node {
	var fit []*leasetest.Node
	for _, n := range f.c.Nodes() {
		if match == nil || match(n) {
			fit = append(fit, n)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[f.r.IntN(len(fit))]
}

// leaderOr returns the leader, most of the time, or another node that is up.
func (f *fault) leaderOr() *leasetest.Node {
	if l := f.c.Leader(); l != nil && f.r.IntN(10) < 6 {
		return l
	}
	return f.any((*leasetest.Node).Up)
}

func follows(n *leasetest.Node) bool { return n.Up() && !n.Paused() && n.Role() != raft.StateLeader }

// voters returns the voters of the configuration that n has applied.
func voters(n *leasetest.Node) []uint64 {
	ids := slices.Concat(n.Conf().GetVoters(), n.Conf().GetVotersOutgoing())
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (s *sim) ids() (ids []uint64) {
	for _, n := range s.c.Nodes() {
		ids = append(ids, n.ID)
	}
	return ids
}

// except returns all nodes but the given ones.
func (s *sim) except(out ...uint64) []uint64 {
	return slices.DeleteFunc(s.ids(), func(id uint64) bool { return slices.Contains(out, id) })
}

// isolate cuts n off for d.
func (s *sim) isolate(n *leasetest.Node, d time.Duration) {
	s.trace.note(s.c.Now(), n.ID, "is isolated", "ms", uint64(d.Milliseconds()))
	s.lines.cutAll([]uint64{n.ID}, s.except(n.ID), true, d)
}
