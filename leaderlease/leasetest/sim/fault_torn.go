package sim

import (
	"math/rand/v2"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// tornFaults kill a process between the entries and the hard state of one Ready, or
// before a commit index is synced. They are drawn from a stream of their own.
var tornFaults = []faultKind{
	{"tear", 3, 0, 3, tearFault},
	{"recipe_torn_changes", 4, 2, 5, tornChanges},
}

// drawDisks draws which data crashes lose, and whether nodes recover it.
func drawDisks(r *rand.Rand, w *Swarm) {
	all := uint64(1)<<(w.nodes()+1) - 2
	w.Separate = pick(r, 0, all, all, r.Uint64()) & all
	w.OneLog = pick(r, 0, 0, all, r.Uint64()) & all &^ w.Separate
	w.Tears = pick(r, 0, 30, 100)
	w.Bare = r.IntN(3) == 0
}

// drawTorn adds such faults to those of a schedule.
func (s *Schedule) drawTorn(r *rand.Rand) {
	if w := &s.Swarm; w.Separate|w.OneLog != 0 {
		s.addFaults(r, tornFaults, 4*w.Gap)
	}
}

// diskKind is the kind of a node's disk.
func (w *Swarm) diskKind(id uint64) leasetest.DiskKind {
	switch {
	case has(w.Separate, id):
		return leasetest.SeparateFiles
	case has(w.OneLog, id):
		return leasetest.OneLog
	default:
		return leasetest.AtomicBatches
	}
}

// tearFault kills a process in its next write of entries with a hard state.
func tearFault(f *fault) {
	n := f.leaderOr()
	if n == nil {
		return
	}
	f.note(n, "is to tear a Ready")
	n.TearNext(func([]*raftpb.Entry) bool { return true }, func() {
		f.afterTear(n)
		f.after(f.For, func() { f.restart(n) })
	})
}

// afterTear is kill for a process that has died in a write.
func (f *fault) afterTear(n *leasetest.Node) {
	f.note(n, "has died in a write")
	f.pauses[n.ID] = 0
	n.Clock.Start()
}

// tornChanges hides two or more changes of membership from a follower, which then receives them
// in one append, and kills the follower before its disk knows that the first one is committed.
// The follower comes back on the side of a majority of the voters before the changes, while the
// leader has a majority of the voters after them.
func tornChanges(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		p, ok := f.drawPartition(l)
		if !ok {
			return
		}
		f.note(p.x, "is not to hear of changes")
		f.trace.note(f.c.Now(), l.ID, "is to lead", "voters", digits(p.to.voters))
		rejoin := f.lines.cutOff([]uint64{p.x.ID}, f.except(p.x.ID), true)
		f.after(2*f.w.Latency, func() { f.changeInSteps(l, p.to, rejoin, func() { f.tearOff(p, rejoin) }) })
	})
}

// partitionPlan is a partition: x, which forgets the changes that lead to the configuration to, and
// the nodes on its side, which are a majority of the voters before.
type partitionPlan struct {
	x    *leasetest.Node
	to   configuration
	side []uint64
}

// drawPartition draws a configuration that l and a majority of it can go on with, without
// a majority of the voters now.
func (f *fault) drawPartition(l *leasetest.Node) (p partitionPlan, ok bool) {
	old := voters(l)
	p.x = f.any(func(n *leasetest.Node) bool { return n != l && follows(n) && slices.Contains(old, n.ID) })
	if p.x == nil || isJoint(l.Conf()) {
		return p, false
	}
	for range 10 {
		ids := f.except(l.ID)
		f.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		p.to = configuration{voters: append([]uint64{l.ID}, ids[:f.r.IntN(len(ids)+1)]...)}
		if !slices.Contains(p.to.voters, p.x.ID) {
			p.to.learners = []uint64{p.x.ID} // it must receive the log
		}
		p.side = f.sideOf(p.x.ID, l.ID, old, p.to)
		rest := slices.DeleteFunc(slices.Clone(p.to.voters), func(id uint64) bool { return slices.Contains(p.side, id) })
		if len(p.side) > len(old)/2 && len(rest) > len(p.to.voters)/2 {
			return p, true
		}
	}
	return p, false
}

// sideOf returns a bare majority of old with x and without l, if there is one, as
// far as possible of nodes that do not vote in to.
func (f *fault) sideOf(x, l uint64, old []uint64, to configuration) []uint64 {
	others := slices.DeleteFunc(slices.Clone(old), func(id uint64) bool { return id == x || id == l })
	slices.SortStableFunc(others, func(a, b uint64) int {
		return bit(slices.Contains(to.voters, a)) - bit(slices.Contains(to.voters, b))
	})
	return append([]uint64{x}, others[:min(len(others), len(old)/2)]...)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// changeInSteps has l change to a configuration by more than one entry: through a joint
// configuration, or one member at a time. Then it runs then, or otherwise if l does not
// get there.
func (f *fault) changeInSteps(l *leasetest.Node, to configuration, otherwise, then func()) {
	if f.r.IntN(2) == 0 {
		l.Change(&raftpb.ConfChangeV2{
			Transition: raftpb.ConfChangeTransitionJointImplicit.Enum(), Changes: difference(l.Conf(), to, f.ids()),
		})
	}
	step, limit := 4*f.w.Latency+2*f.w.Disk+f.w.Apply, 3*f.w.electionTimeout()
	end, done := f.c.Now()+limit, false
	f.repeat(step, limit, func() bool {
		changes := difference(l.Conf(), to, f.ids())
		switch {
		case !l.Up() || l.Paused() || l.Role() != leaderRole || f.c.Now()+step >= end:
			otherwise()
			done = true
		case isJoint(l.Conf()):
		case len(changes) == 0:
			then()
			done = true
		default:
			// Raft makes an empty entry of it while another change is under way.
			l.Change(&raftpb.ConfChangeV2{Changes: changes[:1]})
		}
		return done
	})
}

// tearOff lets the node of p catch up, kills it and parts the group.
func (f *fault) tearOff(p partitionPlan, rejoin func()) {
	part := func() {
		f.afterTear(p.x)
		rest := slices.DeleteFunc(f.ids(), func(id uint64) bool { return slices.Contains(p.side, id) })
		f.lines.cutAll(p.side, rest, true, f.For)
		f.after(between(f.r, 0, f.beat()), func() {
			f.restart(p.x)
			f.push(p.side, f.For)
		})
	}
	if !p.x.Up() {
		rejoin()
		return
	}
	if f.r.IntN(3) > 0 {
		p.x.TearNext(severalChanges, part)
	} else {
		f.after(between(f.r, f.beat(), 3*f.beat()), func() {
			if p.x.Up() {
				p.x.Crash(0)
				part()
			}
		})
	}
	rejoin()
}

func severalChanges(entries []*raftpb.Entry) bool {
	n := 0
	for _, e := range entries {
		if e.GetType() != raftpb.EntryNormal {
			n++
		}
	}
	return n > 1
}
