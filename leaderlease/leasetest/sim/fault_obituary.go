package sim

import (
	"slices"
	"time"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// deathFaults send members death notices, which are always true. Drawn schedules do not have
// them: see AddDeathNotices.
var deathFaults = []faultKind{
	{"obituary", 4, 0, 3, deathProven},
	{"obituary_former", 3, 0, 1, formerDeaths},
	{"obituary_back", 3, 0, 0.1, restartedLeaderDeaths},
}

// AddDeathNotices adds deathFaults to a schedule. They are drawn from a stream of their own, so
// that the other faults of a seed do not change.
func (s *Schedule) AddDeathNotices() {
	r := stream(s.Seed, streamDeaths)
	et, n := float64(s.Swarm.electionTimeout()), 0
	for i := range s.Faults {
		n = max(n, s.Faults[i].N)
	}
	for at := between(r, time.Second, 2*s.Swarm.Gap); at < s.Duration; at += time.Duration(r.ExpFloat64() * float64(s.Swarm.Gap)) {
		k := pick(r, &deathFaults[0], &deathFaults[1], &deathFaults[2])
		n++
		s.Faults = append(s.Faults, Fault{N: n, At: at, Kind: k.name, For: between(r, time.Duration(k.min*et), time.Duration(k.max*et))})
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// deathProven kills the leader, and sends its death notice to nearly all others.
func deathProven(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.crashFor(l, f.For)
		f.sendDeathNotices(l)
	})
}

// formerDeaths sends the death notices of all earlier processes of the leader's node again.
func formerDeaths(f *fault) { f.withLeader(f.sendDeathNotices) }

// restartedLeaderDeaths kills the leader for a moment. The next leader hands leadership back to
// the same node, and then the death notices of its earlier processes arrive.
func restartedLeaderDeaths(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.crashFor(l, f.For)
		f.repeat(f.beat(), 6*f.w.electionTimeout(), func() bool {
			now := f.c.Leader()
			if now == nil || !l.Up() {
				return false
			}
			if now == l && l.Valid() {
				f.sendDeathNotices(l)
				return true
			}
			if now != l && !now.Paused() {
				now.Transfer(l.ID)
			}
			return false
		})
	})
}

// sendDeathNotices sends the death notice of each dead process of l to the other nodes, with a
// chance of nine in ten: within milliseconds or late, and sometimes twice.
func (f *fault) sendDeathNotices(l *leasetest.Node) {
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

// died records that the present process of n has died.
func (s *sim) died(n *leasetest.Node) {
	s.dead[n.ID] = append(s.dead[n.ID], n.ProcessID())
	s.dead[n.ID] = s.dead[n.ID][max(0, len(s.dead[n.ID])-3):]
}
