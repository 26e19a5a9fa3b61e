package rules

import (
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// suspecting is a group with promises of 300 ms and an election timeout of a second, whose
// members act upon connections that end.
func suspecting(t *testing.T) *story { return beating(t, 100*ms) }

// beating is the same with heartbeats that often.
func beating(t *testing.T, tick time.Duration) *story {
	t.Helper()
	s := begin(t, leasetest.Options{
		TickInterval: tick, ElectionTick: int(election / tick),
		Configure: func(_ uint64, cfg *leaderlease.Config) { cfg.Duration = 300 * ms },
		Node:      func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Async: true, Suspects: true} },
	})
	s.lead(1)
	s.Run(100 * ms)
	return s
}

// A leader that dies is replaced when the promise to it has ended, long before silence
// would tell.
func TestV7AHintNeedsNoElectionTimeout(t *testing.T) {
	s := suspecting(t)
	s.Node(1).Crash(0)
	died := s.Now()
	s.Node(2).Gone(1)
	s.Node(3).Gone(1)
	if !s.RunUntil(election, func() bool { return s.Leader() != nil }) {
		t.Fatal("nobody leads within an election timeout")
	}
	if took := s.Now() - died; took > 320*ms {
		t.Errorf("node %d leads after %v, want 300ms and a few", s.Leader().ID, took)
	}
}

// What raft forgets because of a hint, the guard does not: the leader is alive and cut off,
// and its lease runs to its end.
func TestV7AHintEndsNoPromise(t *testing.T) {
	s := suspecting(t)
	s.isolate(1)
	s.Node(2).Gone(1)
	s.Node(3).Gone(1)
	s.wantStatus(1, core.Valid)
	if !s.RunUntil(election, func() bool { return s.Leader().ID != 1 }) {
		t.Fatal("nobody else leads within an election timeout")
	}
	s.disjoint()
	if s.Node(2).Suspicions().Forgets != 1 {
		t.Errorf("Suspicions() = %+v, want the leader forgotten once", s.Node(2).Suspicions())
	}
}

// One follower is wrong, or both are, and the leader's heartbeats go on: no term changes,
// and the lease is never lost.
func TestV7AFalseAlarmChangesNoTerm(t *testing.T) {
	for _, wrong := range [][]uint64{{2}, {2, 3}} {
		s := suspecting(t)
		for range 50 {
			for _, id := range wrong {
				s.Node(id).Gone(1)
			}
			s.Run(30 * ms)
			s.wantReign(1, 1)
		}
		if got := s.Node(2).Suspicions(); got.FalseSuspicions == 0 || got.Forgets != 0 {
			t.Errorf("Suspicions() = %+v, want false alarms, and nobody forgotten", got)
		}
	}
}

// The same where leases are off, so that no promise keeps the followers from voting.
func TestV7AFalseAlarmChangesNoTermWithoutPromises(t *testing.T) {
	s := begin(t, leasetest.Options{
		Configure: func(_ uint64, cfg *leaderlease.Config) { cfg.Disabled = true },
		Node:      func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Async: true, Suspects: true} },
	})
	s.Node(1).Campaign()
	s.Run(500 * ms)
	for range 50 {
		s.Node(2).Gone(1)
		s.Node(3).Gone(1)
		s.Run(30 * ms)
	}
	if l, got := s.Leader(), s.Node(2).Suspicions(); l == nil || l.ID != 1 || l.Term() != 1 || got.FalseSuspicions == 0 || got.Forgets != 0 {
		t.Errorf("Suspicions() = %+v, want false alarms, nobody forgotten, and node 1 to lead term 1", got)
	}
}

// One follower hears nothing of the leader any more, which the other does: it forgets its
// leader, asks for pre-votes, and gets none.
func TestV7AloneWithAHintChangesNoTerm(t *testing.T) {
	s := suspecting(t)
	s.Net.Split([]uint64{1}, []uint64{2})
	s.Node(2).Gone(1)
	for range 20 {
		s.Run(50 * ms)
		s.wantReign(1, 1)
	}
	if got := s.Node(2).Suspicions(); got.Forgets != 1 {
		t.Errorf("Suspicions() = %+v, want the leader forgotten once", got)
	}
}

// Both are wrong, and hear nothing of the leader for as long as the promise lasts: it costs
// one election.
func TestV7AFalseAlarmCostsOneElection(t *testing.T) {
	s := suspecting(t)
	s.isolate(1)
	s.Node(2).Gone(1)
	s.Node(3).Gone(1)
	s.Run(400 * ms)
	s.Net.Heal()
	s.Run(3 * election)
	if l := s.Leader(); l.ID == 1 || l.Term() != 2 || !l.Valid() {
		t.Errorf("node %d leads term %d, want another than node 1 in term 2", l.ID, l.Term())
	}
	s.disjoint()
}

// A follower that has missed the hint does not veto for an election timeout: it believes
// the other's request for a pre-vote, since its own promise has ended.
func TestV7AMissedHintVetoesNothing(t *testing.T) {
	s := suspecting(t)
	s.Node(1).Crash(0)
	died := s.Now()
	s.Node(2).Gone(1)
	if !s.RunUntil(election, func() bool { return s.Leader() != nil }) {
		t.Fatal("nobody leads within an election timeout")
	}
	if took := s.Now() - died; took > 400*ms {
		t.Errorf("node %d leads after %v, want 300ms and a turn", s.Leader().ID, took)
	}
}
