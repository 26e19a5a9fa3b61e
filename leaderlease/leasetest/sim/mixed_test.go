package sim

import (
	"testing"
	"time"
)

// mixedSchedule has a group in an upgrade: node 1 asks for longer promises than nodes 2 and 3,
// leadership moves around, and processes die while they save promises.
func mixedSchedule(s *Schedule) {
	w := &s.Swarm
	w.Voters, w.Learners, w.Spares, w.Plain, w.Stock = 3, 0, 0, 0, 0
	w.Tick, w.ElectionTick, w.HeartbeatTick = 100*time.Millisecond, 10, 1
	w.D, w.LongD, w.DriftPPM = 900*time.Millisecond, false, 50_000
	w.Skew, w.Short = driftSkew(w.D, w.DriftPPM), 0b1100
	w.Async = 0b1110
	w.Disk, w.Apply, w.Step, w.Latency = 20*time.Millisecond, 0, 0, time.Millisecond
	s.Faults = nil
	for at := time.Second; at < s.Duration; at += 5 * time.Second {
		s.Faults = append(s.Faults, Fault{N: len(s.Faults) + 1, At: at, Kind: "recipe_dying_savers", For: 2 * time.Second})
	}
}

func TestMixedDurations(t *testing.T) {
	sum := &Result{}
	for seed := uint64(1); seed <= mistakeSeeds(8); seed++ {
		r := Run(t, Config{Seed: seed, Trace: true, Amend: mixedSchedule})
		r.Require(t)
		sum.Add(r)
	}
	if sum.Saves == 0 || sum.AllLeaseReads() == 0 {
		t.Errorf("%d saves and %d reads under a lease, want some of both", sum.Saves, sum.AllLeaseReads())
	}
}
