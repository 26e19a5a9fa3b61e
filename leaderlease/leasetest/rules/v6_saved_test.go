package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// mixed returns a group in which node 1 asks for promises of 900 ms, as an older version does, and
// the others ask for 300 ms. A write to any disk takes delay.
func mixed(t *testing.T, delay *time.Duration) *story {
	t.Helper()
	return begin(t, leasetest.Options{
		Configure: func(id uint64, cfg *leaderlease.Config) {
			if id != 1 {
				cfg.Duration, cfg.MaxPromise = 300*ms, 900*ms
			}
		},
		Node: func(uint64) leasetest.NodeOptions {
			return leasetest.NodeOptions{Async: true, DiskDelay: func() time.Duration { return *delay }}
		},
	})
}

// crashed kills both voters and starts them again, when their promises to node 1 have
// just been made, and returns how long it takes them to elect another.
func (s *story) crashed() time.Duration {
	s.isolate(1)
	for _, id := range []uint64{2, 3} {
		s.Node(id).Crash(0)
		s.Node(id).Restart()
	}
	s.wantStatus(1, core.Valid)
	return s.usurp(2, 2, 3)
}

// A member with a short promise grants a long one once a restart would hold for it: the
// first probe is refused, and the next one is not.
func TestV6ALongerPromiseIsSavedFirst(t *testing.T) {
	disk := time.Duration(0)
	s := mixed(t, &disk)
	s.lead(1)
	for _, id := range []uint64{2, 3} {
		st := s.Node(id).Lease()
		if got := st.Stats().RefusedProbes; got == 0 || got > 2 || st.Info().Promise.Saved != 900*ms {
			t.Errorf("node %d refused %d probes and has saved %v, want one or two, and 900ms", id, got, st.Info().Promise.Saved)
		}
	}
	if took := s.crashed(); took < 700*ms {
		t.Errorf("node 2 was elected after %v: the voters have forgotten what they promised", took)
	}
}

// While a longer promise is being saved, no promise is made, so a crash loses none.
func TestV6ACrashBeforeALongerPromiseIsSaved(t *testing.T) {
	disk := time.Duration(0)
	s := mixed(t, &disk)
	s.Node(1).Campaign()
	s.Run(50 * ms)
	if r := s.Node(1).Role(); r != raft.StateLeader {
		t.Fatalf("Role() of node 1 = %v, want StateLeader", r)
	}
	disk = time.Second
	s.Run(400 * ms)
	if s.Node(1).Valid() {
		t.Error("node 1 has a lease by promises that are not saved")
	}
	disk = 0
	for _, id := range []uint64{2, 3} {
		l := s.Node(id).Lease()
		if p := l.Info().Promise; p.Remaining > 0 || p.Saved != 300*ms || l.Stats().RefusedProbes == 0 {
			t.Errorf("node %d has promised %+v before its disk knows, and refused %d probes", id, p, l.Stats().RefusedProbes)
		}
	}
}

// The saved duration falls with the second restart after the last longer promise. The first
// restart holds for that promise.
func TestV6WhatIsSavedFollowsThePromises(t *testing.T) {
	disk := time.Duration(0)
	s := mixed(t, &disk)
	s.lead(1)
	s.Node(1).Transfer(2)
	s.Run(100 * ms)
	s.wantLeader(2, 2)
	restarted := func(hold time.Duration) {
		t.Helper()
		s.Node(3).Crash(0)
		s.Node(3).Restart()
		if got := s.Node(3).Lease().Info().Promise; got.Hold != hold || got.Saved != hold {
			t.Fatalf("it holds for %v, and %v is saved, want %v", got.Hold, got.Saved, hold)
		}
		s.Run(hold + 100*ms)
	}
	s.Run(time.Second)
	restarted(900 * ms)
	restarted(300 * ms)
	s.Node(2).Transfer(1)
	s.Run(400 * ms)
	s.wantLeader(1, 3)
	if got := s.Node(3).Lease().Info().Promise.Saved; got != 900*ms {
		t.Fatalf("%v is saved, want 900ms, which node 1 asks for", got)
	}
	s.wantStatus(1, core.Valid)
	if took := s.crashed(); took < 700*ms {
		t.Errorf("node 2 was elected after %v: the voters have forgotten what they promised", took)
	}
}
