package rules

import (
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// The first in the order of turns lacks the leader's last entry, and nobody votes for it:
// it must not keep the other one from standing for as long as the hint is believed.
func TestV7ACandidateThatCannotWinHoldsNobodyUp(t *testing.T) {
	s := suspecting(t)
	s.Net.Hold = to(2, raftpb.MsgApp)
	s.write(1, 7)
	s.Node(1).Crash(0)
	died := s.Now()
	s.Node(2).Gone(1)
	s.Node(3).Gone(1)
	if !s.RunUntil(3*election, func() bool { return s.Leader() != nil }) {
		t.Fatal("nobody leads within three election timeouts")
	}
	if took := s.Now() - died; took > 600*ms {
		t.Errorf("node %d leads after %v, want 300ms and six turns at most", s.Leader().ID, took)
	}
}

// A message takes longer from member to member than a turn lasts: the two that outlive the
// leader must not split the vote, and wait for silence then.
func TestV7TurnsOverALongWay(t *testing.T) {
	for i, way := range []time.Duration{15 * ms, 30 * ms, 45 * ms, 15 * ms, 30 * ms, 45 * ms, 60 * ms} {
		s, most := suspecting(t), 300*ms+10*way
		if i >= 3 { // as in kvnode: the turns that are too short are not repeated
			s, most = beating(t, 50*ms), election
		}
		s.Net.Plan = func(*raftpb.Message) []time.Duration { return []time.Duration{way} }
		s.Run(500 * ms)
		s.Node(1).Crash(0)
		died := s.Now()
		s.After(way, func() { s.Node(2).Gone(1); s.Node(3).Gone(1) })
		if !s.RunUntil(3*election, func() bool { return s.Leader() != nil }) {
			t.Fatal("nobody leads within three election timeouts")
		}
		took := s.Now() - died
		if took >= most {
			t.Errorf("one way %v: node %d leads term %d after %v, want less than %v", way, s.Leader().ID, s.Leader().Term(), took, most)
		}
	}
}

// Turns after a hint are half a heartbeat, and members are further apart: the vote is split, and
// the first whose turn is as long as an election stands anew. The other votes for it, and leaves
// it the time.
func TestV7ATurnIsShorterThanTheWay(t *testing.T) {
	for _, way := range []time.Duration{30 * ms, 60 * ms, 100 * ms, 120 * ms} {
		s := begin(t, leasetest.Options{
			TickInterval: 50 * ms, ElectionTick: 20,
			Configure: func(_ uint64, cfg *leaderlease.Config) { cfg.Duration, cfg.MaxClockSkew = 250*ms, 100*ms },
			Node:      func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Async: true, Suspects: true} },
		})
		s.lead(1)
		s.Net.Plan = func(*raftpb.Message) []time.Duration { return []time.Duration{way} }
		s.Run(time.Second)
		s.Node(1).Crash(0)
		died := s.Now()
		s.After(way, func() { s.Node(2).Gone(1); s.Node(3).Gone(1) })
		if !s.RunUntil(5*election, func() bool { return s.Leader() != nil }) {
			t.Fatal("nobody leads within five election timeouts")
		}
		if took := s.Now() - died; took > 1400*ms {
			t.Errorf("one way %v: node %d leads after %v, want 1.4s at most", way, s.Leader().ID, took)
		}
	}
}

// Without a hint, and with disks that are slow: who stands is given time to be elected before
// it campaigns once more, however short ticks are.
func TestTurnsAfterSilenceAreLongEnoughForDisks(t *testing.T) {
	for _, tick := range []time.Duration{25 * ms, 50 * ms, 100 * ms} {
		slowest := time.Duration(0)
		for seed := range uint64(20) {
			disk := rand.New(rand.NewPCG(seed, 1))
			s := begin(t, leasetest.Options{
				TickInterval: tick, ElectionTick: int(election / tick),
				Configure: func(_ uint64, cfg *leaderlease.Config) { cfg.Duration, cfg.MaxClockSkew = 300*ms, 60*ms },
				Node: func(uint64) leasetest.NodeOptions {
					return leasetest.NodeOptions{Async: true, Suspects: true, DiskDelay: func() time.Duration { return time.Duration(disk.Int64N(int64(60 * ms))) }}
				},
			})
			s.lead(1)
			s.Run(time.Second)
			s.Node(1).Crash(0)
			died := s.Now()
			if !s.RunUntil(5*election, func() bool { return s.Leader() != nil }) {
				t.Fatal("nobody leads within five election timeouts")
			}
			slowest = max(slowest, s.Now()-died)
		}
		if slowest > election+500*ms {
			t.Errorf("a tick of %v: somebody leads after %v, want an election timeout and less than two turns", tick, slowest)
		}
	}
}

// Raft's own timeout sends the one at the moment at which the other's turn comes, and each
// votes for itself. The first of them stands again in its next turn, and does not wait for
// another timeout of raft's.
func TestASplitVoteIsOverInTheNextTurn(t *testing.T) {
	for _, tick := range []time.Duration{25 * ms, 50 * ms, 100 * ms} {
		s := begin(t, leasetest.Options{
			TickInterval: tick, ElectionTick: int(election / tick),
			Configure: func(_ uint64, cfg *leaderlease.Config) { cfg.Duration, cfg.MaxClockSkew = 300*ms, 60*ms },
			Node:      func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Async: true, Suspects: true} },
		})
		s.lead(1)
		s.Run(time.Second)
		s.Node(1).Crash(0)
		s.RunUntil(2*election, func() bool { return s.Node(2).Role() == raft.StatePreCandidate })
		s.Node(3).Campaign()
		s.RunUntil(tick, func() bool { return s.Node(2).Role() == raft.StateCandidate && s.Node(3).Role() == raft.StateCandidate })
		split := s.Now()
		if !s.RunUntil(3*election, func() bool { return s.Leader() != nil }) {
			t.Fatal("nobody leads within three election timeouts")
		}
		if took := s.Now() - split; took > 700*ms || took < 100*ms {
			t.Errorf("a tick of %v: somebody leads %v after the vote was split, want two turns of 300ms", tick, took)
		}
	}
}
