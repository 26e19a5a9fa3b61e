package rules

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// grants counts the grants that id has sent to another node.
func (s *story) grants(id, leader uint64) *int {
	n := new(int)
	s.Net.OnSend = func(m *raftpb.Message) {
		if f, ok := leasetest.FieldOf(m); ok && f.Kind == "grant" && m.GetFrom() == id && m.GetTo() == leader {
			*n++
		}
	}
	return n
}

// strip loses the lease field of the heartbeats that id sends, as a codec that
// drops unknown fields does. Everything else arrives as usual.
func (s *story) strip(id uint64) {
	s.Net.Hold = func(m *raftpb.Message) bool {
		if m.GetFrom() == id && m.GetType() == raftpb.MsgHeartbeat {
			leasetest.StripField(m)
		}
		return false
	}
}

// A promise to one leader is not granted to another leader, which has sent no probe.
func TestV2NoGrantToAnotherLeader(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.isolate(1)
	s.strip(2)
	s.usurp(2, 2, 3)
	n := s.grants(3, 2)
	s.Run(300 * ms)
	if *n != 0 {
		t.Errorf("node 3 sent %d grants to node 2, which asked for none, want 0", *n)
	}
}

// What was promised to a leader in one term is not granted to it in another.
func TestV2NoGrantInAnotherTerm(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(duration)
	s.bump(1, 2, 5)
	s.strip(1)
	s.Run(duration)
	s.usurp(1, 2, 3)
	n := s.grants(3, 1)
	s.Run(300 * ms)
	if got := s.Node(1).Term(); got != 6 {
		t.Fatalf("Term() = %d, want 6", got)
	}
	if *n != 0 || s.Node(1).Valid() {
		t.Errorf("grants, Valid() = %d, %v for a promise of term 1, want 0, false", *n, s.Node(1).Valid())
	}
}

// A voter that refused the probe answers the heartbeat all the same. Its answer
// is no grant.
func TestV2AnAnswerIsNoGrant(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.strip(1)
	s.Node(1).Campaign()
	n := s.grants(2, 1)
	s.Run(500 * ms)
	if lead := s.Leader(); lead == nil || lead.ID != 1 {
		t.Fatalf("Leader() = %+v, want node 1", lead)
	}
	if *n != 0 || s.Node(1).Valid() {
		t.Errorf("grants, Valid() = %d, %v after heartbeats without probes, want 0, false", *n, s.Node(1).Valid())
	}
}
