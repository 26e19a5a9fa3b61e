package sim

import (
	"testing"
	"time"
)

// Suspecting silent leaders causes no election without faults: there are as many elections as
// without it.
func TestSilenceCausesNoElectionWithoutFaults(t *testing.T) {
	alarms := uint64(0)
	for seed := uint64(1); seed <= mistakeSeeds(40); seed++ {
		elections := func(learns uint64) uint64 {
			r := Run(t, Config{Seed: seed, Amend: func(s *Schedule) {
				s.Swarm.Suspects, s.Swarm.Learns, s.Faults = ^uint64(0), learns, nil
			}})
			r.Require(t)
			alarms += r.Alarms
			return r.Elections
		}
		if with, without := elections(^uint64(0)), elections(0); with > without {
			t.Errorf("seed %d: %d elections, and %d without adaptive failure detection", seed, with, without)
		}
	}
	t.Logf("%d alarms", alarms)
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
	if sum.Alarms <= sum.FalseAlarms || sum.FalseAlarms == 0 || sum.AllLeaseReads() == 0 {
		t.Errorf("%d alarms, %d false ones, %d reads under a lease, want some of each", sum.Alarms, sum.FalseAlarms, sum.AllLeaseReads())
	}
}
