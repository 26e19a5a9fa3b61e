package sim

import (
	"time"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

var clockFaults = []faultKind{
	{"rates", 3, 0, 0, func(f *fault) {
		for _, n := range f.c.Nodes() {
			f.redrawClock(n, f.r)
		}
	}},
	{"rate", 3, 0, 0, func(f *fault) { f.redrawClock(f.any(nil), f.r) }},
	{"disrupt", 1, 0, 0, func(f *fault) {
		if n := f.leaderOr(); n != nil {
			f.note(n, "its clock is disrupted")
			n.Clock.Disrupt()
		}
	}},
	{"clock_fails", 1, 0.1, 2, failClock},
	{"clock_steps_back", 1, 0, 0, stepBack},
	{"slow_leader", 4, 0, 0, slowLeader},
	{"clock_jumps_ahead", 2, 0, 0, func(f *fault) {
		if n := f.leaderOr(); n != nil {
			f.jumpAhead(n)
		}
	}},
}

// failClock makes a clock unreadable for a while. A process cannot start with
// such a clock.
func failClock(f *fault) {
	n := f.leaderOr()
	if n == nil {
		return
	}
	f.note(n, "its clock cannot be read")
	n.Clock.SetFailed(true)
	f.c.After(f.For, func() { n.Clock.SetFailed(false) })
}

// stepBack sets a clock back while the node runs, and the node notices it. The node must hold
// as after a restart and give its lease up. A step that no reading shows, because the node is
// paused or has read the clock too long ago, breaks assumption A1. So stepBack calls Info,
// which reads the clock, before and after.
func stepBack(f *fault) {
	n := f.leaderOr()
	if n == nil || !n.Up() || n.Paused() || n.Lease() == nil {
		return
	}
	f.note(n, "its clock goes back")
	n.Lease().Info()
	n.Clock.Step(-between(f.r, 1, 4*f.w.D))
	n.Lease().Info()
	n.Lease().Info()
}

// jumpAhead sets a clock ahead and changes its disruption marker, as when a
// machine is moved or restored and its clock set right. What the node owed a
// moment ago it still owes.
func (f *fault) jumpAhead(n *leasetest.Node) {
	ahead := pick(f.r, f.w.D/2, 500*time.Millisecond, 900*time.Millisecond, time.Hour)
	f.note(n, "its clock jumps ahead")
	n.Clock.Step(ahead)
	n.Clock.Disrupt()
}

// jumpingVoters cuts the leader off at some point between two heartbeats, has
// the clocks of most voters jump ahead, and pushes.
func jumpingVoters(f *fault) {
	f.withLeader(func(l *leasetest.Node) {
		f.after(between(f.r, 0, f.beat()), func() {
			others := f.except(l.ID)
			f.lines.cutAll([]uint64{l.ID}, others, true, f.For)
			for _, id := range others {
				if f.r.IntN(4) != 0 {
					f.jumpAhead(f.c.Node(id))
				}
			}
			f.push(others, f.For)
		})
	})
}

// slowLeader makes the leader's clock as slow and all others as fast as the
// bound allows: the worst case for the margin.
func slowLeader(f *fault) {
	l := f.c.Leader()
	if l == nil {
		return
	}
	f.note(l, "has the slowest clock")
	rho := float64(f.w.DriftPPM+f.w.BeyondPPM) / 1e6
	for _, n := range f.c.Nodes() {
		n.Clock.SetRate(1 + rho)
	}
	l.Clock.SetRate(1 - rho)
}
