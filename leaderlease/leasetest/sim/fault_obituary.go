package sim

import (
	"slices"
	"time"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// obituaryFaults have members hear that a process has died, which is always so. No schedule that
// is drawn has them: see Mourn.
var obituaryFaults = []faultKind{
	{"obituary", 4, 0, 3, deathProven},
	{"obituary_former", 3, 0, 1, formerDeaths},
	{"obituary_back", 3, 0, 0.1, deathOfWhoLeadsAgain},
}

// Mourn adds such faults to a schedule, drawn from a stream of their own: what else happens is
// what its seed has always meant.
func (s *Schedule) Mourn() {
	r := stream(s.Seed, streamObituary)
	et, n := float64(s.Swarm.electionTimeout()), 0
	for i := range s.Faults {
		n = max(n, s.Faults[i].N)
	}
	for at := between(r, time.Second, 2*s.Swarm.Gap); at < s.Duration; at += time.Duration(r.ExpFloat64() * float64(s.Swarm.Gap)) {
		k := pick(r, &obituaryFaults[0], &obituaryFaults[1], &obituaryFaults[2])
		n++
		s.Faults = append(s.Faults, Fault{N: n, At: at, Kind: k.name, For: between(r, time.Duration(k.min*et), time.Duration(k.max*et))})
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// deathProven kills the leader, and its obituary goes to nearly all others.
func deathProven(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.crashFor(l, f.For)
		f.bury(l)
	})
}

// formerDeaths tells all others of all processes of the leader's that have died, once more.
func formerDeaths(f *fault) { f.withLeader(f.bury) }

// deathOfWhoLeadsAgain kills the leader for a moment. As soon as somebody leads it is handed the
// leadership back, and then its former processes' obituaries arrive.
func deathOfWhoLeadsAgain(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.crashFor(l, f.For)
		f.repeat(f.beat(), 6*f.w.electionTimeout(), func() bool {
			now := f.c.Leader()
			if now == nil || !l.Up() {
				return false
			}
			if now == l && l.Valid() {
				f.bury(l)
				return true
			}
			if now != l && !now.Paused() {
				now.Transfer(l.ID)
			}
			return false
		})
	})
}

// bury tells each other node, in nine of ten cases, of each process of l's that has died: within
// milliseconds or late, and at times twice.
func (f *fault) bury(l *leasetest.Node) {
	for _, dead := range f.dead[l.ID] {
		for _, n := range f.c.Nodes() {
			for n != l && f.r.IntN(10) > 0 {
				f.after(between(f.r, 0, pickDelay(f)), func() {
					f.trace.note(f.c.Now(), n.ID, "hears of a death", "of process", l.ID, uint64(dead[15]))
					n.ProcessDied(l.ID, dead)
				})
				if f.r.IntN(4) > 0 {
					break
				}
			}
		}
	}
}

func pickDelay(f *fault) time.Duration {
	return pick(f.r, 5*time.Millisecond, 5*time.Millisecond, f.w.D, 3*f.w.electionTimeout())
}

// died notes that the present process of n has.
func (s *sim) died(n *leasetest.Node) {
	s.dead[n.ID] = append(s.dead[n.ID], n.ProcessID())
	s.dead[n.ID] = s.dead[n.ID][max(0, len(s.dead[n.ID])-3):]
}
