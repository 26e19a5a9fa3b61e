package rules

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

func ids(ids ...uint64) []uint64 { return ids }

// joined waits until the leader has applied a change, and makes a snapshot that
// its new members can start from.
func (s *story) joined(id uint64, changed func() bool) {
	s.t.Helper()
	if !s.RunUntil(election, changed) {
		s.t.Fatalf("Conf() of node %d = %v, want the change applied", id, s.Node(id).Conf())
	}
	s.Node(id).Compact()
}

// The lease ends when the promise of the last voter that a quorum needs does.
func TestL3QuorumOfPromises(t *testing.T) {
	joint := &raftpb.ConfState{Voters: ids(1, 4, 5), VotersOutgoing: ids(1, 2, 3)}
	for _, tc := range []struct {
		name    string
		cs      *raftpb.ConfState
		granted []uint64 // each with a send instant 100 later
		wantEnd core.Instant
	}{
		{"three voters, one answer", &raftpb.ConfState{Voters: ids(1, 2, 3)}, ids(2), 100},
		{"three voters, the newer answer", &raftpb.ConfState{Voters: ids(1, 2, 3)}, ids(2, 3), 200},
		{"five voters, one answer", &raftpb.ConfState{Voters: ids(1, 2, 3, 4, 5)}, ids(2), 0},
		{"five voters, two answers", &raftpb.ConfState{Voters: ids(1, 2, 3, 4, 5)}, ids(2, 3), 100},
		{"four voters, one answer", &raftpb.ConfState{Voters: ids(1, 2, 3, 4)}, ids(2), 0},
		{"two voters", &raftpb.ConfState{Voters: ids(1, 2)}, ids(2), 100},
		{"two voters, no answer", &raftpb.ConfState{Voters: ids(1, 2)}, nil, 0},
		{"learners", &raftpb.ConfState{Voters: ids(1, 2, 3), Learners: ids(4, 5)}, ids(4, 5), 0},
		{"joint, incoming half only", joint, ids(4, 5), 0},
		{"joint, outgoing half only", joint, ids(2, 3), 0},
		{"joint, both halves", joint, ids(4, 2), 100},
		{"sole voter", &raftpb.ConfState{Voters: ids(1)}, nil, core.Forever},
		{"no voters", &raftpb.ConfState{}, nil, 0},
		{"no voters but outgoing ones", &raftpb.ConfState{VotersOutgoing: ids(1)}, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := leaderOfTerm5(1, tc.cs)
			for i, id := range tc.granted {
				l.Count(id, 5, core.Grant{Sent: core.Instant(100 * (i + 1)), Duration: duration}, 1000)
			}
			want := tc.wantEnd
			if want > 0 {
				want = want.Add(duration)
			}
			if got := l.View(1000).End; got != want {
				t.Errorf("View().End = %d, want %d", got, want)
			}
		})
	}
}

// A sole voter waits for no heartbeat, and its lease does not run out.
func TestL3SoleVoterNeedsNoHeartbeat(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: ids(1)})
	s.Node(1).Campaign()
	s.Run(10 * ms)
	s.wantStatus(1, core.Valid)
	s.Net.Hold = func(*raftpb.Message) bool { return true }
	s.Run(20 * election)
	s.wantStatus(1, core.Valid)
}

// A sole voter that gets company loses its endless lease at once: the others
// can elect without it.
func TestL3SoleVoterGrows(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: ids(1), Spares: ids(2, 3)})
	s.lead(1)
	s.Node(1).Change(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
		{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(2))},
		{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(3))},
	}})
	s.joined(1, func() bool { return len(s.Node(1).Conf().GetVoters()) == 3 })
	if !s.RunUntil(election, func() bool {
		return len(s.Node(3).Conf().GetVoters()) == 3 && len(s.Node(3).Conf().GetVotersOutgoing()) == 0
	}) {
		t.Fatalf("Conf() of node 3 = %v, want voters 1 to 3", s.Node(3).Conf())
	}
	s.isolate(1)
	s.usurp(2, 2, 3)
}

// A sole voter that grows to two depends on the other at once.
func TestL3SoleVoterGrowsToTwo(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: ids(1), Spares: ids(2)})
	s.lead(1)
	s.Net.Hold = to(1, raftpb.MsgHeartbeatResp)
	s.Node(1).Change(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(2))})
	s.RunUntil(election, func() bool { return len(s.Node(1).Conf().GetVoters()) == 2 })
	s.wantStatus(1, core.Expired)
	s.Net.Hold = nil
	s.Run(200 * ms)
	s.wantStatus(1, core.Valid)
}

// Learners answer heartbeats like everyone else. Cut off from the other voters,
// the leader does not mistake them for a quorum.
func TestL3LearnersDoNotCount(t *testing.T) {
	s := begin(t, leasetest.Options{Learners: ids(4, 5)})
	s.lead(1)
	s.Run(50 * ms)
	s.Net.Split(ids(1, 4, 5), ids(2, 3))
	s.usurp(2, 2, 3)
}

// The leader has entered a joint configuration that nodes 2 and 3 have not
// heard of. They are a quorum of what they know, so the incoming half alone
// gives no lease.
func TestL3JointNeedsBothHalves(t *testing.T) {
	s := begin(t, leasetest.Options{Spares: ids(4, 5)})
	s.lead(1)
	s.Node(1).Change(&raftpb.ConfChangeV2{
		Transition: raftpb.ConfChangeTransitionJointExplicit.Enum(),
		Changes: []*raftpb.ConfChangeSingle{
			{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(4))},
			{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(5))},
			{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(2))},
			{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(3))},
		},
	})
	s.joined(1, func() bool { return len(s.Node(1).Conf().GetVotersOutgoing()) == 3 })
	s.Net.Split(ids(1, 4, 5), ids(2, 3))
	s.Run(500 * ms)
	if got := s.Node(4).Conf().GetVoters(); len(got) != 3 {
		t.Fatalf("Conf() of node 4 has voters %v, want 1, 4, 5", got)
	}
	s.usurp(2, 2, 3)
}
