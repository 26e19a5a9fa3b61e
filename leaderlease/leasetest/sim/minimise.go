package sim

import (
	"slices"
	"testing"
	"time"
)

// Minimise looks for the smallest schedule that still lets the same oracle find
// something, by running ever smaller parts of the one in r, and returns the
// result of the smallest. It makes at most runs simulations.
func Minimise(t *testing.T, cfg Config, r *Result, runs int) *Result {
	t.Helper()
	m := &minimiser{t: t, cfg: cfg, best: r, left: runs}
	m.cfg.Amend = nil // the schedule in r has been amended
	if r.Violation == nil {
		return r
	}
	m.cutShort()
	m.dropFaults()
	m.simplify()
	m.dropFaults()
	m.moveForward()
	return m.best
}

type minimiser struct {
	t    *testing.T
	cfg  Config
	best *Result
	left int
}

// try runs s and keeps it if it fails like the best so far.
func (m *minimiser) try(s *Schedule) bool {
	if m.left <= 0 {
		return false
	}
	m.left--
	cfg := m.cfg
	cfg.Schedule = s
	r := Run(m.t, cfg)
	if r.Violation == nil || r.Violation.Oracle != m.best.Violation.Oracle {
		return false
	}
	m.best = r
	return true
}

// cutShort ends the run soon after the violation, and leaves out what would
// have come later.
func (m *minimiser) cutShort() {
	at := m.best.Violation.At
	s := *m.best.Schedule
	if at >= s.Duration {
		return // found after healing
	}
	s.Duration = at + time.Millisecond
	s.Faults = slices.DeleteFunc(slices.Clone(s.Faults), func(f Fault) bool { return f.At > at })
	m.try(&s)
}

// dropFaults is delta debugging: leave out large parts first, then smaller ones,
// until no single fault can go.
func (m *minimiser) dropFaults() {
	for size := (len(m.best.Schedule.Faults) + 1) / 2; size > 0 && m.left > 0; {
		if !m.dropAny(size) {
			size /= 2
			continue
		}
		size = min(size, len(m.best.Schedule.Faults))
	}
}

// dropAny tries to leave out each run of size faults, the latest first, because
// the earliest faults move everything that follows.
func (m *minimiser) dropAny(size int) (dropped bool) {
	for end := len(m.best.Schedule.Faults); end > 0; end -= size {
		drop := make(map[int]bool)
		for _, f := range m.best.Schedule.Faults[max(end-size, 0):end] {
			drop[f.N] = true
		}
		if m.try(m.best.Schedule.without(drop)) {
			dropped = true
		}
	}
	return dropped
}

// moveForward tries to begin with the first fault as early as possible.
func (m *minimiser) moveForward() {
	faults := m.best.Schedule.Faults
	if len(faults) == 0 {
		return
	}
	for doublings := range 5 {
		s := *m.best.Schedule
		by := faults[0].At - s.Swarm.electionTimeout()<<(doublings+1)
		if by <= 0 {
			return
		}
		s.Faults = slices.Clone(faults)
		for i := range s.Faults {
			s.Faults[i].At -= by
		}
		s.Duration -= by
		if m.try(&s) {
			return
		}
	}
}

// simplify tries simpler parameters, one at a time.
func (m *minimiser) simplify() {
	for _, change := range []func(*Swarm){
		func(w *Swarm) { w.Spares = 0 },
		func(w *Swarm) { w.Learners = 0 },
		func(w *Swarm) { w.Voters = 3 },
		func(w *Swarm) { w.Plain = 0 },
		func(w *Swarm) { w.Async = 0 },
		func(w *Swarm) { w.Arrival = 0 },
		func(w *Swarm) { w.Queue = 0 },
		func(w *Swarm) { w.Disk = 0 },
		func(w *Swarm) { w.Apply = 0 },
		func(w *Swarm) { w.Step = 0 },
		func(w *Swarm) { w.Keys = 1 },
		func(w *Swarm) { w.Tears = 0 },
		func(w *Swarm) { w.Bare = false },
		func(w *Swarm) { w.Separate, w.OneLog = 0, w.Separate|w.OneLog },
	} {
		s := *m.best.Schedule
		change(&s.Swarm)
		if s.Swarm != m.best.Schedule.Swarm {
			m.try(&s)
		}
	}
}
