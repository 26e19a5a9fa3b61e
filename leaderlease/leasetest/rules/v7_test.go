package rules

import (
	"testing"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// Raft forgets its leader; the guard does not.
func TestV7PromiseSurvivesAForgottenLeader(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.isolate(1)
	s.Node(2).ForgetLeader()
	s.Node(3).ForgetLeader()
	if l := s.Node(3).Lease().Info().Leader; l != raft.None {
		t.Fatalf("Info().Leader = %d, want 0", l)
	}
	s.wantStatus(1, core.Valid)
	s.usurp(2, 3)
}

// A message of a later term makes raft start over; the promise was made to a
// leader that has not heard of that term, and stands.
func TestV7PromiseSurvivesAHigherTerm(t *testing.T) {
	// Without AsyncStorageWrites, WouldBlock would cover for the guard.
	s := begin(t, leasetest.Options{Node: func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Async: true} }})
	s.lead(1)
	s.isolate(1)
	s.bump(2, 3, 5)
	s.bump(3, 2, 5)
	if got := s.Node(3).Term(); got != 5 {
		t.Fatalf("Term() = %d, want 5", got)
	}
	s.wantStatus(1, core.Valid)
	s.usurp(2, 3)
}
