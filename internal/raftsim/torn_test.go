package raftsim

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// Members 4 and 5 join {1, 2, 3} one after the other. Member 1 gets both changes in one
// append and is killed between the entries and the hard state. It then counts votes as
// before both changes: {1, 2} elect it, while 3 leads {3, 4, 5}. The log proves that the
// first change is committed, so that 1 needs one of {3, 4} as well.
func TestTornChangesElectASecondLeader(t *testing.T) {
	asItIs, proven := tornChanges(t, false), tornChanges(t, true)
	if asItIs.leads(1) == 0 || asItIs.committed(1) == asItIs.committed(3) {
		t.Errorf("as raft is: member 1 leads term %d and has committed%s, member 3%s, want another log: this program no longer shows the defect",
			asItIs.leads(1), asItIs.committed(1), asItIs.committed(3))
	}
	if proven.leads(1) != 0 {
		t.Errorf("with the commit index that the log proves: member 1 leads term %d beside member 3", proven.leads(1))
	}
	proven.lose = none
	proven.elect(4)
	if one, three := proven.committed(1), proven.committed(3); one != three {
		t.Errorf("with the commit index that the log proves: member 1 has committed%s, member 3%s, want one log", one, three)
	}
}

func tornChanges(t *testing.T, recovers bool) *trio {
	c := newGroup(t, []uint64{1, 2, 3}, 4, 5)
	c.recovers, c.noPreVote = recovers, true
	for _, id := range c.ids {
		c.start(id) // without PreVote, for shortness
	}
	c.elect(3)
	c.lose = func(m *raftpb.Message) bool { return m.GetFrom() == 1 || m.GetTo() == 1 }
	for _, id := range []uint64{4, 5} {
		_ = c.members[3].raw.ProposeConfChange(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(id)})
		c.settle()
	}
	c.lose = none
	c.members[1].torn = true
	c.tick(3, 2)
	if c.members[1].raw != nil {
		t.Fatal("member 1 has got no append")
	}
	c.restart(1)
	c.settle()

	c.lose = func(m *raftpb.Message) bool { return m.GetFrom() <= 2 != (m.GetTo() <= 2) }
	c.propose(3, "y")
	c.campaign(1)
	return c
}
