package sim

import (
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

func mistakeSeeds(all uint64) uint64 {
	if testing.Short() {
		return 1
	}
	return all
}

// Sending rd.Messages of a copy that was made before the call of Ready was once the worst
// mistake: the lease looked valid, and forbidden votes leaked. Now it is harmless, and all
// oracles apply.
func TestSendingACopyOfTheReadyIsHarmless(t *testing.T) {
	sum := &Result{}
	for seed := uint64(1); seed <= mistakeSeeds(8); seed++ {
		r := Run(t, Config{Seed: seed, Node: func(_ uint64, o *leasetest.NodeOptions) {
			o.Mistake = func(int) leasetest.Mistake { return leasetest.SendsCopy }
		}})
		r.Require(t)
		sum.Add(r)
	}
	if sum.AllLeaseReads() == 0 {
		t.Error("no read under a lease")
	}
}

// A node that does not call Ready, or calls it with clones, has no lease and makes no promise.
// Nor does it break the promise of its earlier process, which embedded the Lease correctly:
// nodes alternate at each restart.
func TestMistakesWithReadyMakeNoReadStale(t *testing.T) {
	skipShort(t)
	for name, m := range map[string]leasetest.Mistake{"never": leasetest.NeverReady, "clones": leasetest.SendsClones, "late": leasetest.ReadyTooLate} {
		t.Run(name, func(t *testing.T) {
			sum := &Result{}
			for seed := uint64(1); seed <= mistakeSeeds(4); seed++ {
				for first := range 2 {
					changes := 0
					r := Run(t, Config{Seed: seed, SkipGuard: true, Misused: true, Node: func(id uint64, o *leasetest.NodeOptions) {
						o.Mistake = everySecond(m, first+int(id), &changes)
					}})
					r.Require(t)
					sum.Add(r)
					if changes == 0 {
						t.Errorf("seed %d: no node has changed between right and wrong in %d crashes", seed, r.Crashes)
					}
				}
			}
			if sum.Elections == 0 || sum.Reads[leaderlease.PathLease] == 0 {
				t.Errorf("%d elections, %d reads under a lease, want some of both", sum.Elections, sum.Reads[leaderlease.PathLease])
			}
		})
	}
}

// everySecond lets every second process of a node make m, and counts how often the
// node changes.
func everySecond(m leasetest.Mistake, first int, changes *int) func(process int) leasetest.Mistake {
	var last leasetest.Mistake
	known := false
	return func(process int) leasetest.Mistake {
		now := m
		if (process+first)%2 == 0 {
			now = leasetest.NoMistake
		}
		if known && now != last {
			*changes++
		}
		last, known = now, true
		return now
	}
}

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
		s.Faults = append(s.Faults, Fault{N: len(s.Faults) + 1, At: at, Kind: "recipe_crash_while_saving", For: 2 * time.Second})
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

// Suspecting silent leaders causes no election without faults: there are as many elections as
// without it.
func TestSilenceCausesNoElectionWithoutFaults(t *testing.T) {
	suspicions := uint64(0)
	for seed := uint64(1); seed <= mistakeSeeds(40); seed++ {
		elections := func(learns uint64) uint64 {
			r := Run(t, Config{Seed: seed, Amend: func(s *Schedule) {
				s.Swarm.Suspects, s.Swarm.Learns, s.Faults = ^uint64(0), learns, nil
			}})
			r.Require(t)
			suspicions += r.Suspicions
			return r.Elections
		}
		if with, without := elections(^uint64(0)), elections(0); with > without {
			t.Errorf("seed %d: %d elections, and %d without adaptive failure detection", seed, with, without)
		}
	}
	t.Logf("%d suspicions", suspicions)
}

// stallingSchedule has three nodes with short promises. Their leaders pause shortly, pause for
// long, or are cut off, after they have led for a while.
func stallingSchedule(s *Schedule) {
	w := &s.Swarm
	w.Voters, w.Learners, w.Spares, w.Plain, w.Stock = 3, 0, 0, 0, 0
	w.Tick, w.ElectionTick, w.HeartbeatTick = 50*time.Millisecond, 20, 1
	w.D, w.LongD, w.DriftPPM = 250*time.Millisecond, false, 50_000
	w.Skew, w.Short = driftSkew(w.D, w.DriftPPM), 0
	w.Async, w.Suspects, w.Learns = 0b1110, 0b1110, 0b1110
	w.Disk, w.Apply, w.Step, w.Latency = 5*time.Millisecond, 0, 0, time.Millisecond
	s.Faults = nil
	for at := 2 * time.Second; at < s.Duration; at += 6 * time.Second {
		n := len(s.Faults)
		f := Fault{N: n + 1, At: at, Kind: "pause", For: time.Duration(100+n*37%500) * time.Millisecond}
		switch n % 4 {
		case 2:
			f.For = 3 * time.Second
		case 3:
			f.Kind, f.For = "isolate", 2*time.Second
		}
		s.Faults = append(s.Faults, f)
	}
}

// Right and wrong suspicions break no rule, and both occur.
func TestStallingLeaders(t *testing.T) {
	sum := &Result{}
	for seed := uint64(1); seed <= mistakeSeeds(8); seed++ {
		r := Run(t, Config{Seed: seed, Trace: true, Amend: stallingSchedule})
		r.Require(t)
		sum.Add(r)
	}
	if sum.Suspicions <= sum.FalseSuspicions || sum.FalseSuspicions == 0 || sum.AllLeaseReads() == 0 {
		t.Errorf("%d suspicions, %d false ones, %d reads under a lease, want some of each", sum.Suspicions, sum.FalseSuspicions, sum.AllLeaseReads())
	}
}

// Death notices break no rule: at once, late, twice or never, and of leading or of earlier
// processes. Some of them void promises.
func TestDeathNotices(t *testing.T) {
	sum := &Result{}
	for seed := uint64(1); seed <= mistakeSeeds(24); seed++ {
		r := Run(t, Config{Seed: seed, Trace: seed%2 == 0, Amend: (*Schedule).AddDeathNotices})
		r.Require(t)
		sum.Add(r)
	}
	s := &sum.Stats
	if s.VoidedPromises == 0 || s.Deaths < 2*s.VoidedPromises || sum.AllLeaseReads() == 0 {
		t.Errorf("%d promises void by %d death notices, %d reads under a lease, want some of each, and twice as many notices as void promises",
			s.VoidedPromises, s.Deaths, sum.AllLeaseReads())
	}
	t.Logf("%d promises void by %d death notices, %d elections", s.VoidedPromises, s.Deaths, sum.Elections)
}
