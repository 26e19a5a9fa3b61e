package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// resigned returns a cluster in which leader 1 has resigned in favor of node 2. The MsgTimeoutNow
// of the resignation is held back.
func resigned(t *testing.T, opts leasetest.Options) (s *story, handover *raftpb.Message) {
	t.Helper()
	s = begin(t, opts)
	s.lead(1)
	s.Net.Hold = to(2, raftpb.MsgTimeoutNow)
	if !s.Node(1).Resign(2) {
		t.Fatal("Resign() of the leader = false, want true")
	}
	handover = s.heldOf(to(2, raftpb.MsgTimeoutNow))
	s.Net.Hold = nil
	return s, handover
}

// The successor leads within a few messages, before the promises end. The resigned process may
// die at once, or live on and receive nothing.
func TestL6ResignationHandsThePromisesBack(t *testing.T) {
	for i := range 4 {
		async, dies := i%2 == 0, i/2 == 0
		s := begin(t, leasetest.Options{Node: func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Async: async} }})
		s.lead(1)
		s.Run(250 * ms)
		for _, id := range []uint64{2, 3} {
			if !s.Node(id).Bound() {
				t.Fatalf("Bound() of node %d = false, want true", id)
			}
		}
		if !s.Node(1).Resign(2) {
			t.Fatal("Resign() of the leader = false, want true")
		}
		s.Net.Cut(2, 1)
		s.Net.Cut(3, 1)
		if dies {
			s.Node(1).Crash(0)
		}
		s.Run(10 * ms)
		s.disjoint()
		if r := s.Node(2).Role(); r != raft.StateLeader {
			t.Errorf("Role() of node 2 = %v 10 ms after the resignation, want StateLeader", r)
		}
	}
}

// Readers lose the lease before the message leaves. It names the leader's term and the present
// instant.
func TestL6ResignationIsPublishedBeforeItLeaves(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(250 * ms)
	m, ok := s.Node(1).Lease().Resign(2)
	s.wantStatus(1, core.Closed)
	if end := s.Node(1).Lease().Info().EndsIn; end != 0 {
		t.Errorf("Info().End = %v, want 0", end)
	}
	if !ok || m.GetType() != raftpb.MsgTimeoutNow || m.GetFrom() != 1 || m.GetTo() != 2 || m.GetTerm() != 1 {
		t.Fatalf("Resign() = %v, %v, want a MsgTimeoutNow from 1 to 2 in term 1", m, ok)
	}
	f, ok := leasetest.FieldOf(m)
	if now := uint64(s.Node(1).Clock.Now()); !ok || f.Kind != "release" || f.Values[0] != 1 || f.Values[1] != now {
		t.Errorf("the message carries %v, want the release of term 1 at %d", f, now)
	}
}

// A process that runs on after it has resigned never serves lease reads again: not in its present
// term, if the message is lost, and not in a later one. Nor does it ask for promises.
func TestL6AResignedMemberNeverServesAgain(t *testing.T) {
	s, _ := resigned(t, leasetest.Options{})
	s.Net.OnSend = func(m *raftpb.Message) {
		if f, ok := leasetest.FieldOf(m); ok && f.Kind == "probe" && m.GetFrom() == 1 {
			t.Errorf("%v: a heartbeat of the resigned node carries %v, want nothing", s.Now(), f)
		}
	}
	s.Run(election + 300*ms)
	s.wantStatus(1, core.Closed)
	if r := s.Node(1).Role(); r != raft.StateLeader {
		t.Fatalf("Role() of node 1 = %v, want StateLeader: its message is held", r)
	}
	s.electEarly(2, 2, 3)
	s.Run(300 * ms)
	s.Node(2).Transfer(1)
	s.Run(300 * ms)
	s.wantStatus(1, core.Closed)
	if r := s.Node(1).Role(); r != raft.StateLeader {
		t.Errorf("Role() of node 1 = %v after a transfer to it, want StateLeader", r)
	}
}

// The release voids earlier promises. A grant under way does not renew the lease, and a probe
// that arrives after the release binds no voter.
func TestL6RenewalsUnderWayDoNotUndoAResignation(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = func(m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgHeartbeatResp && m.GetTo() == 1 || m.GetType() == raftpb.MsgHeartbeat && m.GetTo() == 2
	}
	s.Run(250 * ms)
	s.Node(1).Resign(2)
	s.Net.Hold = nil
	s.Net.Release(to(1, raftpb.MsgHeartbeatResp))
	s.Run(1500 * time.Microsecond) // node 2 has the message, and its term is higher
	s.wantStatus(1, core.Closed)
	s.Net.Release(to(2, raftpb.MsgHeartbeat))
	s.Run(10 * ms)
	s.disjoint()
	if n := s.Node(2); n.Role() != raft.StateLeader || n.Bound() {
		t.Errorf("node 2 is %v, bound: %v, want a leader that is free", n.Role(), n.Bound())
	}
}

// Only a leader can resign. A release by a follower would name its leader's term with an instant
// of its own clock.
func TestL6AFollowerCannotResign(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(250 * ms)
	if s.Node(2).Resign(3) {
		t.Error("Resign() of a follower = true, want false")
	}
	s.Run(20 * ms)
	s.wantLeader(1, 1)
	s.disjoint()
	for _, none := range []uint64{0, 1} {
		if s.Node(1).Resign(none) {
			t.Errorf("Resign(%d) of node 1 = true, want false", none)
		}
	}
	s.wantLeader(1, 1)
}

// A leader that has stepped down cannot resign: it may have made a promise to the next leader.
func TestL6AFormerLeaderCannotResign(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Node(1).Transfer(3)
	s.Run(250 * ms)
	s.wantLeader(3, 2)
	if !s.Node(1).Bound() {
		t.Fatal("Bound() of node 1 = false, want true")
	}
	if s.Node(1).Resign(2) {
		t.Error("Resign() of a former leader = true, want false")
	}
	s.Run(20 * ms)
	s.wantLeader(3, 2)
	s.disjoint()
}

// A late or repeated release changes nothing at a voter that has promised in a later term. In the
// term that it names, no voter has promised since.
func TestL6LateResignations(t *testing.T) {
	s, handover := resigned(t, leasetest.Options{})
	s.hand(handover)
	s.Run(250 * ms)
	s.wantLeader(2, 2)
	s.hand(handover) // to its leader
	s.wantLeader(2, 2)
	s.Node(2).Transfer(1) // the resigned node leads again
	s.Run(250 * ms)
	if n := s.Node(1); n.Role() != raft.StateLeader || n.Term() != 3 {
		t.Fatalf("node 1 is %v of term %d, want leader of term 3", n.Role(), n.Term())
	}
	s.Node(1).Crash(0)
	s.Node(1).Restart()
	s.Run(20 * ms)
	if !s.Elect(1) {
		t.Fatal("Elect(1) = false, want true") // another process, another Lease
	}
	term := s.Node(1).Term()
	s.Run(250 * ms)
	for range 2 {
		s.hand(handover)
		s.Run(20 * ms)
	}
	s.wantLeader(1, term)
	if !s.Node(2).Bound() {
		t.Error("Bound() of node 2 = false, want true: the release names an older term")
	}
	s.disjoint()
}

// A learner and a removed member ignore a resignation to them.
func TestL6ResignationToANonVoter(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}, Spares: []uint64{5}})
	s.lead(1)
	for _, id := range []uint64{4, 5} {
		if !s.Node(1).Resign(id) {
			t.Errorf("Resign(%d) of the leader = false, want true", id)
		}
		s.Run(20 * ms)
		if r := s.Node(id).Role(); r != raft.StateFollower {
			t.Errorf("Role() of node %d = %v, want StateFollower", id, r)
		}
	}
	s.electEarly(2, 2, 3)
}

// A leader resigns during a transfer to a node that does not answer. Another node leads then.
func TestL6ResignationInATransfer(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = to(3, raftpb.MsgTimeoutNow)
	s.Node(1).Transfer(3)
	s.wantStatus(1, core.Transferring)
	s.Node(1).Resign(2)
	s.wantStatus(1, core.Closed)
	s.Node(1).Crash(0)
	s.Run(250 * ms)
	s.wantLeader(2, 2)
	s.Net.Hold = nil
	s.Net.Release(nil) // node 3 hears of the transfer now
	s.Run(250 * ms)
	s.disjoint()
	s.wantLeader(2, 2)
}

// Both halves of a joint configuration are needed, and both have promised.
func TestL6ResignationInAJointConfiguration(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: []uint64{1, 2, 3}, Spares: []uint64{4, 5}})
	s.lead(1)
	s.Node(1).Change(&raftpb.ConfChangeV2{
		Transition: raftpb.ConfChangeTransitionJointExplicit.Enum(),
		Changes: []*raftpb.ConfChangeSingle{
			{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(4))},
			{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(5))},
			{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(3))},
		},
	})
	s.Run(500 * ms)
	if out := s.Node(1).Conf().GetVotersOutgoing(); len(out) != 3 {
		t.Fatalf("the outgoing voters are %v, want three", out)
	}
	s.Node(1).Resign(4)
	s.Node(1).Crash(0)
	s.Run(20 * ms)
	s.disjoint()
	if r := s.Node(4).Role(); r != raft.StateLeader {
		t.Errorf("Role() of node 4 = %v 20 ms after the resignation, want StateLeader", r)
	}
}

// If the successor is dead, the resignation is lost and the promises end by themselves.
func TestL6ResignationToADeadMember(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(250 * ms)
	s.Node(2).Crash(0)
	s.Node(1).Resign(2)
	s.Node(1).Crash(0)
	s.Node(2).Restart()
	s.Run(20 * ms)
	if s.Leader() != nil || !s.Node(3).Bound() {
		t.Fatalf("a node leads, or node 3 is free: want neither")
	}
	if !s.RunUntil(3*election, func() bool { return s.Leader() != nil }) {
		t.Error("no leader within three election timeouts")
	}
	s.disjoint()
}

// The successor lacks an entry that the other voter has, because the message has overtaken it.
// The other voter refuses its vote, and campaigns at once.
func TestL6ResignationToAShorterLog(t *testing.T) {
	s := suspecting(t)
	s.Net.Hold = to(2, raftpb.MsgApp)
	s.write(1, 7)
	s.Node(1).Resign(2)
	s.Node(1).Crash(0)
	s.Node(2).Gone(1)
	s.Node(3).Gone(1)
	s.Run(150 * ms)
	s.disjoint()
	if r := s.Node(3).Role(); r != raft.StateLeader {
		t.Errorf("Role() of node 3 = %v 150 ms after the resignation, want StateLeader", r)
	}
}

// The disk of the resigning leader has failed. The successor is elected without an entry that only
// the leader has. An entry that the followers have is not lost.
func TestL6ResignationWithAFailedDisk(t *testing.T) {
	slow := false
	s := begin(t, leasetest.Options{Node: func(id uint64) leasetest.NodeOptions {
		return leasetest.NodeOptions{Async: true, DiskDelay: diskDelay(id == 1, &slow)}
	}})
	s.lead(1)
	slow = true
	version := s.write(1, 7) // committed by the others
	s.Net.Cut(1, 3)
	s.Net.Cut(1, 2)
	s.Node(1).Write(8, 1<<20, func(uint64) {})
	s.Run(20 * ms)
	s.Net.Heal()
	s.Node(1).Resign(2)
	s.Node(1).Crash(0)
	s.Run(250 * ms)
	s.disjoint()
	s.wantLeader(2, 2)
	if got := s.Node(2).Version(7); got != version {
		t.Errorf("Version(7) of node 2 = %d, want %d", got, version)
	}
}
