package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// Both voters forget their promises, a moment after they were granted. They
// remember that they may have made some.
func TestV6RestartHoldOutlastsTheLease(t *testing.T) {
	// Without AsyncStorageWrites, WouldBlock would cover for the guard.
	for name, opts := range map[string]leasetest.NodeOptions{"sync": {}, "async": {Async: true}} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, leasetest.Options{Node: func(uint64) leasetest.NodeOptions { return opts }})
			s.lead(1)
			s.isolate(1)
			for _, id := range []uint64{2, 3} {
				s.Node(id).Crash(0)
				s.Node(id).Restart()
			}
			s.wantStatus(1, core.Valid)
			if took := s.usurp(2, 2, 3); took > duration+20*ms {
				t.Errorf("node 2 was elected after %v, want at most %v: the hold must end", took, duration+20*ms)
			}
		})
	}
}

// A node that holds answers heartbeats and grants: the lease outlives the
// restart of every voter.
func TestV6HeldVotersGrant(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	for _, id := range []uint64{2, 3} {
		s.Node(id).Crash(0)
		s.Node(id).Restart()
	}
	before := s.Node(1).Lease().Stats().Renewals
	s.Run(500 * ms)
	if h := s.Node(2).Lease().Info().Promise.Hold; h <= 0 {
		t.Fatalf("Info().Promise.Hold = %v, want more than 0", h)
	}
	if got := s.Node(1).Lease().Stats().Renewals - before; got < 4 {
		t.Errorf("%d renewals in the restart hold, want at least 4", got)
	}
}

// The voters come back with a MaxPromise that is a third of what they promised
// before. What was saved counts.
func TestV6HoldCoversThePromisesOfEarlierRuns(t *testing.T) {
	restarted := false
	s := begin(t, leasetest.Options{Configure: func(id uint64, cfg *leaderlease.Config) {
		if !restarted {
			cfg.Duration, cfg.AllowLongDuration = 2700*ms, true
		}
	}})
	s.lead(1)
	restarted = true
	s.isolate(1)
	for _, id := range []uint64{2, 3} {
		s.Node(id).Crash(0)
		s.Node(id).Restart()
	}
	s.wantStatus(1, core.Valid)
	if took := s.usurp(2, 2, 3); took < 2000*ms {
		t.Errorf("node 2 was elected after %v, want at least 2s", took)
	}
}

// A node that has never taken part has nothing to hold for: a new group elects
// at once.
func TestV6EmptyStorageDoesNotHold(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.Node(1).Campaign()
	s.Run(10 * ms)
	if s.Node(1).Role() != raft.StateLeader {
		t.Errorf("Role() = %v 10 ms after the first start, want StateLeader", s.Node(1).Role())
	}
}

// An old release names probes up to an instant. A node that has restarted does
// not know whether it has promised to a later one.
func TestV6NoReleaseLiftsTheHold(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = to(2, raftpb.MsgTimeoutNow)
	s.Node(1).Transfer(2)
	late := s.heldOf(to(2, raftpb.MsgTimeoutNow))
	s.Net.Cut(1, 2)
	s.Run(election + 300*ms)
	s.wantLeader(1, 1)
	s.isolate(1)
	s.Node(3).Crash(0)
	s.Node(3).Restart()
	s.hand(late)
	s.Run(50 * ms)
	if r := s.Node(2).Role(); r != raft.StateCandidate {
		t.Errorf("Role() of node 2 = %v, want StateCandidate", r)
	}
	s.disjoint()
	s.wantStatus(1, core.Valid)
}

// With AsyncStorageWrites a heartbeat may be answered before anything is
// durable. Node 3's first grant must wait: if it crashed it would find an empty
// storage, and would not hold.
func TestV6FirstGrantWaitsForTheDisk(t *testing.T) {
	s := begin(t, leasetest.Options{Node: func(id uint64) leasetest.NodeOptions {
		o := leasetest.NodeOptions{Async: true}
		if id == 3 {
			o.DiskDelay = func() time.Duration { return 3 * time.Second }
		}
		return o
	}})
	s.isolate(3)
	s.lead(1)
	s.Net.Heal()
	s.Net.Split([]uint64{2}, []uint64{1, 3})
	s.Run(duration)
	// Only node 3 answers, and its disk has not yet.
	s.wantStatus(1, core.Expired)
	s.Node(3).Crash(0)
	s.Node(3).Restart()
	if h := s.Node(3).Lease().Info().Promise.Hold; h != 0 {
		t.Fatalf("Info().Promise.Hold = %v, want 0: nothing was durable", h)
	}
	s.Net.Heal()
	s.isolate(1)
	s.campaign(300*ms, 2, 2, 3)
	s.disjoint()
}
