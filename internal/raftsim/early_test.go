package raftsim

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// Member 1 leads five voters and acknowledges changes before it applies them. Members 5
// and then 4 are removed. Then 1, 4 and 5 commit by the first configuration, and 2 and 3
// by the last one. A leader that applies changes first counts as they do.
func TestAChangeThatIsAcknowledgedEarlyForksTheGroup(t *testing.T) {
	for _, early := range []bool{false, true} {
		c := newTrio(t, 1, 2, 3, 4, 5)
		c.elect(1)
		c.members[1].early = early
		for _, gone := range []uint64{5, 4} {
			must(c.members[1].raw.ProposeConfChange(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(gone)}))
			c.settle()
		}
		old := []uint64{1, 4, 5}
		c.lose = func(m *raftpb.Message) bool {
			return slices.Contains(old, m.GetFrom()) != slices.Contains(old, m.GetTo())
		}
		before := c.committed(1)
		c.propose(1, "x")
		for range 100 {
			c.tick(2, 1)
			c.tick(3, 1)
		}
		next := uint64(2)
		if c.leads(2) == 0 {
			next = 3
		}
		if c.leads(next) == 0 {
			t.Fatalf("early %v: neither 2 nor 3 leads", early)
		}
		c.propose(next, "y")
		if forked := c.committed(1) != before; forked != early {
			t.Errorf("early %v: member 1 has committed%q, member %d%q", early, c.committed(1), next, c.committed(next))
		}
		t.Logf("early %v: member 1 has committed%q, member %d%q", early, c.committed(1), next, c.committed(next))
	}
}
