package rules

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// A new leader's commit index may be behind what its predecessor has
// acknowledged, until an entry of its own term is committed.
func TestL4OwnTermMustBeCommitted(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	// Node 2 stores the write, but does not learn that it is committed.
	s.Net.Hold = func(m *raftpb.Message) bool {
		return m.GetFrom() == 1 && (m.GetType() == raftpb.MsgHeartbeat || m.GetType() == raftpb.MsgApp && len(m.GetEntries()) == 0)
	}
	written := s.write(1, 7)
	s.isolate(1)
	// It wins, and its heartbeats are answered, but not its appends.
	s.Net.Hold = from(2, raftpb.MsgApp)
	s.usurp(2, 2, 3)
	s.Run(300 * ms)
	if s.Node(2).Role() != raft.StateLeader || s.Node(2).Version(7) == written {
		t.Fatalf("node 2 is %v and has version %d, want a leader that is behind %d", s.Node(2).Role(), s.Node(2).Version(7), written)
	}
	s.wantStatus(2, core.NoOwnTermCommit)
	s.Net.Hold = nil
	s.Net.Release(from(2, raftpb.MsgApp))
	s.Run(300 * ms)
	if v, st := s.Node(2).TryRead(7); v != written || st != core.Valid {
		t.Errorf("TryRead(7) = %d, %v, want %d, valid", v, st, written)
	}
}

// A leader that is demoted or removed has no lease from the moment it applies
// that, before raft makes it step down: the others elect without it.
func TestL4LeaderMustBeVoter(t *testing.T) {
	for name, change := range map[string]raftpb.ConfChangeType{
		"demoted": raftpb.ConfChangeAddLearnerNode,
		"removed": raftpb.ConfChangeRemoveNode,
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, leasetest.Options{Voters: ids(1, 2, 3, 4)})
			s.lead(1)
			s.Run(500 * ms)
			applied := false
			s.OnApply = func(n *leasetest.Node, e *raftpb.Entry, _ leasetest.Outcome) {
				if n.ID != 1 || e.GetType() != raftpb.EntryConfChange {
					return
				}
				applied = true
				if got := len(n.Conf().GetVoters()); got != 3 {
					t.Fatalf("Conf() of node 1 has %d voters, want 3", got)
				}
				s.wantStatus(1, core.NotVoter)
			}
			s.Node(1).Change(&raftpb.ConfChange{Type: change.Enum(), NodeId: new(uint64(1))})
			s.Run(10 * ms)
			if !applied {
				t.Fatal("node 1 did not apply the change")
			}
			s.wantStatus(1, core.NotLeader)
		})
	}
}
