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

// The member with the first turn lacks the leader's last entry, so it cannot win. It must not keep
// the other member from campaigning while the leader is suspected.
func TestV7ACandidateThatCannotWinDelaysNoElection(t *testing.T) {
	s := suspecting(t)
	s.Net.Hold = to(2, raftpb.MsgApp)
	s.write(1, 7)
	s.Node(1).Crash(0)
	died := s.Now()
	s.Node(2).Gone(1)
	s.Node(3).Gone(1)
	if !s.RunUntil(3*election, func() bool { return s.Leader() != nil }) {
		t.Fatal("no leader within three election timeouts")
	}
	if took := s.Now() - died; took > 600*ms {
		t.Errorf("node %d leads after %v, want 300ms and six turns at most", s.Leader().ID, took)
	}
}

// A message takes longer than a turn lasts. The two remaining members must not split the vote and
// then wait for an election timeout.
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
			t.Fatal("no leader within three election timeouts")
		}
		took := s.Now() - died
		if took >= most {
			t.Errorf("one way %v: node %d leads term %d after %v, want less than %v", way, s.Leader().ID, s.Leader().Term(), took, most)
		}
	}
}

// Turns after a hint last half a heartbeat, less than a message takes, so the vote is split. Then the
// first member with a turn as long as an election campaigns again, and the other votes for it.
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
			t.Fatal("no leader within five election timeouts")
		}
		if took := s.Now() - died; took > 1400*ms {
			t.Errorf("one way %v: node %d leads after %v, want 1.4s at most", way, s.Leader().ID, took)
		}
	}
}

// Without a hint and with slow disks, a candidate has time to be elected before it campaigns again,
// even with short ticks.
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
				t.Fatal("no leader within five election timeouts")
			}
			slowest = max(slowest, s.Now()-died)
		}
		if slowest > election+500*ms {
			t.Errorf("a tick of %v: a leader is elected after %v, want an election timeout and less than two turns", tick, slowest)
		}
	}
}

// One member campaigns by raft's own timeout when the other's turn comes, and each votes for itself.
// The first of them campaigns again in its next turn, without another timeout of raft.
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
			t.Fatal("no leader within three election timeouts")
		}
		if took := s.Now() - split; took > 700*ms || took < 100*ms {
			t.Errorf("a tick of %v: a leader is elected %v after the vote was split, want two turns of 300ms", tick, took)
		}
	}
}
