package leasetest

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

// stepBack sets a clock back while the node runs, which then notices it. The
// node must hold as after a restart and give its lease up. A clock that goes
// back where nobody looks, while the node is paused or by less than the time
// since it was last read, breaks assumption A1: Status reads it before and after.
func stepBack(f *fault) {
	n := f.leaderOr()
	if n == nil || !n.up || n.paused || n.lease == nil {
		return
	}
	f.note(n, "its clock goes back")
	n.lease.Status()
	n.Clock.Step(-between(f.r, 1, 4*f.w.D))
	n.lease.Status()
	n.lease.Status()
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
