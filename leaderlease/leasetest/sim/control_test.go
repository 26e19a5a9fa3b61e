package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease"
)

// controls break one assumption each. They are the negative controls of the simulation: each
// oracle must fail when its assumption is broken.
var controls = map[string]func(*Schedule){
	"clocks":  func(s *Schedule) { s.Swarm.BeyondPPM = 300_000 },
	"margin":  func(s *Schedule) { s.Swarm.NoMargin = true },
	"stock":   func(s *Schedule) { s.Swarm.Stock = ^uint64(0) },
	"suspend": func(s *Schedule) { s.Swarm.StopsClock = true },
	"forget":  func(s *Schedule) { s.Swarm.Forgets = true },
	"mute":    func(s *Schedule) { s.Swarm.Mute = true },
	"proof":   func(s *Schedule) { s.Swarm.HardStateAlone = true },
}

func TestControls(t *testing.T) {
	skipShort(t)
	for _, c := range []struct {
		name, claim string
		seeds       uint64
		oracles     []string
	}{
		{"clocks", "rates beyond the configured bound", 100, []string{"disjoint", "stale"}},
		{"margin", "no margin for rates within the bound", 200, []string{"disjoint", "stale"}},
		{"stock", "raft's own ReadOnlyLeaseBased", 20, []string{"stale"}},
		{"suspend", "clocks that stop under suspend (A2)", 100, []string{"disjoint", "stale"}},
		{"forget", "changes of membership that a crash forgets", 200, []string{"liveness"}},
		{"mute", "raft's own elections after a leader removed itself", 200, []string{"liveness"}},
		{"proof", "commit indexes that a crash forgets and the log proves", 50, []string{"disjoint", "stale", "raft"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := firstViolation(t, Config{Amend: controls[c.name]}, c.seeds)
			if !slices.Contains(c.oracles, r.Violation.Oracle) {
				t.Errorf("%s: %s, want one of %v", c.claim, r.Line(), c.oracles)
			}
		})
	}
}

// ReadIndex reads are right with any clocks, also on followers. Here leaders have far too slow
// clocks, each in a minority that cannot elect a leader.
func TestReadIndexTrustsNoClock(t *testing.T) {
	skipShort(t)
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	sum := &Result{}
	for seed := uint64(1); seed <= seeds; seed++ {
		r := Run(t, Config{Seed: seed, Amend: slowMinorities, IndexReads: true})
		r.Require(t)
		sum.Add(r)
	}
	if n := sum.Reads[leaderlease.PathForwarded]; n == 0 {
		t.Error("no read was forwarded")
	}
}

func slowMinorities(s *Schedule) {
	w := &s.Swarm
	w.Voters, w.Learners, w.Spares, w.Plain, w.BeyondPPM = 5, 0, 0, 0, 700_000
	s.Faults = nil
	for at := 2 * time.Second; at < s.Duration; at += 8 * w.electionTimeout() {
		n := len(s.Faults)
		s.Faults = append(s.Faults,
			Fault{N: n + 1, At: at, Kind: "slow_leader"},
			Fault{N: n + 2, At: at + w.D/4, Kind: "halves", For: 4 * w.electionTimeout()})
	}
}
