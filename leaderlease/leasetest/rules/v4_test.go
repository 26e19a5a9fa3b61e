package rules

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// The filter and raft's Step are not one critical section. Node 3 lets a vote
// in while it is free; before raft steps it, a heartbeat overtakes: the promise
// is made, the grant leaves. The vote must not leave, too.
func TestV4VoteCastBeforeThePromiseDoesNotLeave(t *testing.T) {
	for name, async := range map[string]bool{"sync": false, "async": true} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, leasetest.Options{Node: func(uint64) leasetest.NodeOptions {
				return leasetest.NodeOptions{Async: async}
			}})
			s.lead(1)
			s.isolate(1)
			s.Net.Hold = from(2, raftpb.MsgVote)
			s.campaign(duration+50*ms, 2, 2, 3)
			vote := s.heldOf(to(3, raftpb.MsgVote))
			n := s.Node(3)
			if !n.Lease().Incoming(vote, leaderlease.ProcessID{}) {
				t.Fatal("Incoming(MsgVote) at a free voter = false, want true")
			}
			s.Net.Join(1, 3)
			if !s.RunUntil(election, s.Node(1).Valid) {
				t.Fatal("node 3's grant did not renew the lease of node 1")
			}
			n.ForgetLeader()
			s.isolate(1)
			if err := n.Raw().Step(vote); err != nil {
				t.Fatalf("Step(MsgVote) = %v", err)
			}
			n.Kick()
			s.Run(50 * ms)
			s.disjoint()
			if s.stats(3).Withheld.VoteRespOut == 0 {
				t.Error("node 3 withheld no granted vote, want one")
			}
			s.Net.Hold = nil
			s.usurp(2, 2, 3)
		})
	}
}

// Node 2 is bound and campaigns; node 3, cut off from the leader, is free to
// vote for it. Only the candidate's own promise stands in the way.
func TestV4BoundVoterDoesNotCampaign(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Split([]uint64{1}, []uint64{3})
	s.RunUntil(election*2, func() bool { return !s.Node(3).Bound() })
	s.isolate(1)
	s.wantReign(1, 1)
	s.usurp(2, 2, 3)
	if s.stats(2).Withheld.PreVoteOut == 0 {
		t.Error("node 2 withheld no pre-vote of its own, want some")
	}
}

// As above, but node 2 began before it was bound: it is a candidate whose vote
// requests are about to leave when the promise is made.
func TestV4BoundCandidateAsksForNoVote(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Split([]uint64{1}, []uint64{3})
	s.Net.Hold = func(m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgHeartbeat && m.GetTo() == 2 || m.GetType() == raftpb.MsgPreVoteResp
	}
	s.RunUntil(election*2, func() bool { return !s.Node(2).Bound() && !s.Node(3).Bound() })
	n := s.Node(2)
	n.ForgetLeader()
	s.Node(3).ForgetLeader()
	n.Campaign()
	s.Run(5 * ms)
	beat := s.heldOf(to(2, raftpb.MsgHeartbeat))
	resp := s.heldOf(from(3, raftpb.MsgPreVoteResp))
	// Both are let in, the answer first; then raft steps it.
	if !n.Lease().Incoming(resp, leaderlease.ProcessID{}) || !n.Lease().Incoming(beat, leaderlease.ProcessID{}) {
		t.Fatal("Incoming() of a free node = false, want true")
	}
	s.isolate(1)
	if err := n.Raw().Step(resp); err != nil {
		t.Fatalf("Step(MsgPreVoteResp) = %v", err)
	}
	n.Kick()
	if s.stats(2).Withheld.VoteOut == 0 {
		t.Errorf("node 2, %v, withheld no MsgVote, want some", n.Role())
	}
}
