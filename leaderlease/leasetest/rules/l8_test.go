package rules

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Grants end with the leader's term. A new term begins without grants, even on the same node.
func TestL8ANewTermBeginsWithoutGrants(t *testing.T) {
	l := leaderOfTerm5(1000, &raftpb.ConfState{Voters: ids(1, 2, 3)})
	l.Count(2, 5, core.Grant{Sent: 1500, Duration: duration}, 2000)
	v := l.View(2000)
	if got := v.Check(2000); got != core.Valid {
		t.Fatalf("Check() = %v, want valid", got)
	}
	l.Lead(7, 3000)
	l.OwnTermCommitted()
	v = l.View(3000)
	if v.Term != 7 || v.End != 0 {
		t.Errorf("View() in the new term = term %d, end %d, want term 7, end 0", v.Term, v.End)
	}
	if l.Count(2, 5, core.Grant{Sent: 2500, Duration: duration}, 4000); l.View(4000).End != 0 {
		t.Errorf("View().End = %d after a grant of term 5, want 0", l.View(4000).End)
	}
	l.StepDown()
	if l.Count(2, 7, core.Grant{Sent: 3500, Duration: duration}, 4000); l.View(4000).End != 0 {
		t.Errorf("View().End = %d after the step-down, want 0", l.View(4000).End)
	}
}

// Node 1 loses leadership with some grants counted and others under way, and wins the next election.
// Neither kind renews the new lease, because they are of the earlier term.
func TestL8OldGrantsDoNotReviveTheLease(t *testing.T) {
	s, late := aborted(t)
	s.Net.Cut(1, 2)
	s.Run(election + 300*ms)
	s.Net.Hold = to(1, raftpb.MsgHeartbeatResp)
	s.Run(150 * ms)
	s.wantLeader(1, 1)
	s.Net.Join(1, 2)
	s.hand(late) // node 1 votes for node 2
	s.Run(20 * ms)
	s.Node(2).Transfer(1)
	s.Run(20 * ms)
	n := s.Node(1)
	if lead := s.Leader(); lead != n || n.Term() != 3 {
		t.Fatalf("Leader() = %+v, want node 1 in term 3", lead)
	}
	s.wantStatus(1, core.Expired)
	s.Net.Release(nil)
	s.Run(5 * ms)
	s.wantStatus(1, core.Expired)
}
