package rules

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// withheld returns how often id kept back what w names.
func (s *story) stats(id uint64) leaderlease.Stats { return s.Node(id).Lease().Stats() }

// lonely is a cluster in which node 2 has not heard of the leader for so long
// that it is free, while node 3 is bound and has just forgotten its leader.
func lonely(t *testing.T) *story {
	t.Helper()
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Cut(1, 2)
	s.Net.Cut(2, 1)
	s.RunUntil(election*2, func() bool { return !s.Node(2).Bound() })
	s.Node(3).ForgetLeader()
	if s.Node(2).Bound() || !s.Node(3).Bound() {
		t.Fatalf("Bound() of nodes 2, 3 = %v, %v, want false, true", s.Node(2).Bound(), s.Node(3).Bound())
	}
	return s
}

// A bound voter does not even answer a pre-vote: node 2 would raise its term on
// the strength of it and depose a leader that a quorum has promised to.
func TestV3PreVoteIsKeptAway(t *testing.T) {
	s := lonely(t)
	s.Node(2).Campaign()
	s.Run(5 * ms)
	if s.stats(3).Withheld.PreVoteIn == 0 {
		t.Error("node 3 withheld no pre-vote, want one")
	}
	if got := s.Node(2).Term(); got != 1 {
		t.Errorf("Term() of node 2 = %d, want 1", got)
	}
	s.Net.Heal()
	s.Run(300 * ms)
	s.wantReign(1, 1)
}

// A vote that was asked for while nobody was bound is late: by now node 3 is.
func TestV3VoteIsKeptAway(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.isolate(1)
	s.Net.Hold = from(2, raftpb.MsgVote)
	s.campaign(duration+50*ms, 2, 2, 3)
	if s.Node(2).Role() != raft.StateCandidate || len(s.Net.Held()) == 0 {
		t.Fatalf("node 2 is %v with %d votes on their way, want a candidate with some", s.Node(2).Role(), len(s.Net.Held()))
	}
	// The leader reaches node 3 again before the votes do.
	s.Net.Join(1, 3)
	s.Run(150 * ms)
	s.wantReign(1, 1)
	s.Node(3).ForgetLeader()
	s.Net.Release(to(3, raftpb.MsgVote))
	s.Run(5 * ms)
	if s.stats(3).Withheld.VoteIn == 0 {
		t.Error("node 3 withheld no vote, want some")
	}
	if got := s.Node(3).Term(); got != 1 {
		t.Errorf("Term() of node 3 = %d, want 1", got)
	}
	s.wantReign(1, 1)
	s.disjoint()
}

// A MsgTimeoutNow without a release, as a node without the library sends it,
// starts no campaign at a bound voter.
func TestV3TimeoutNowIsKeptAway(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	m := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(1))}
	if s.Node(2).Lease().Incoming(m, leaderlease.ProcessID{}) {
		t.Error("Incoming(MsgTimeoutNow) at a bound voter = true, want false")
	}
	if got := s.stats(2).Withheld.TimeoutNowIn; got != 1 {
		t.Errorf("Withheld[timeout_now_in] = %d, want 1", got)
	}
}

// Votes go through once the promise has ended, and the withheld ones left
// nothing behind: fail-over works.
func TestV3FreeVoterVotes(t *testing.T) {
	s := lonely(t)
	s.isolate(1)
	s.usurp(2, 3)
}

// Votes for a bound node do not count either, whenever it asked for them.
func TestV3VotesForABoundNodeAreKeptAway(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	for _, tc := range []struct {
		typ    raftpb.MessageType
		reject bool
		want   bool
	}{
		{raftpb.MsgVoteResp, false, false},
		{raftpb.MsgPreVoteResp, false, false},
		{raftpb.MsgVoteResp, true, true},
		{raftpb.MsgPreVoteResp, true, true},
	} {
		m := &raftpb.Message{Type: tc.typ.Enum(), From: new(uint64(3)), To: new(uint64(2)), Term: new(uint64(2)), Reject: new(tc.reject)}
		if got := s.Node(2).Lease().Incoming(m, leaderlease.ProcessID{}); got != tc.want {
			t.Errorf("Incoming(%v, reject %v) at a bound node = %v, want %v", tc.typ, tc.reject, got, tc.want)
		}
	}
}
