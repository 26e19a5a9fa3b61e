package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// grow is a joint change that leaves by itself.
func grow(added ...uint64) *raftpb.ConfChangeV2 {
	cc := &raftpb.ConfChangeV2{}
	for _, id := range added {
		cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(id)})
	}
	return cc
}

// Three voters become five. Node 1 and 2 were a quorum; now the other three
// are one, and the lease must know.
func TestL5VotersFollowTheConfiguration(t *testing.T) {
	s := begin(t, leasetest.Options{Spares: ids(4, 5)})
	s.lead(1)
	s.Node(1).Change(grow(4, 5))
	s.joined(1, func() bool { return len(s.Node(1).Conf().GetVoters()) == 5 })
	// Just after the leader has checked its quorum, so that it stays leader for
	// as long as raft lets it.
	s.Run(2050*ms - s.Now())
	if got := s.Node(1).Conf(); len(got.GetVoters()) != 5 || len(got.GetVotersOutgoing()) != 0 {
		t.Fatalf("Conf() = %v, want five voters", got)
	}
	s.Net.Split(ids(1, 2), ids(3, 4, 5))
	s.electEarly(3, 3, 4, 5)
}

// As before, but node 1 learns of the five voters from a snapshot.
func TestL5VotersFollowASnapshot(t *testing.T) {
	s := begin(t, leasetest.Options{Spares: ids(4, 5)})
	s.lead(2)
	s.isolate(1)
	s.Node(2).Change(grow(4, 5))
	s.joined(2, func() bool { return len(s.Node(2).Conf().GetVoters()) == 5 })
	s.Run(500 * ms)
	s.write(2, 7)
	s.Node(2).Compact()
	s.Net.Heal()
	if !s.RunUntil(3*time.Second, func() bool { return len(s.Node(1).Conf().GetVoters()) == 5 }) {
		t.Fatalf("Conf() of node 1 = %v, want five voters", s.Node(1).Conf())
	}
	s.Node(2).Transfer(1)
	if !s.RunUntil(3*time.Second, s.Node(1).Valid) {
		t.Fatal("node 1 never led under a lease")
	}
	s.Run(50 * ms)
	s.Net.Split(ids(1, 2), ids(3, 4, 5))
	s.electEarly(3, 3, 4, 5)
}

// There is no lease between the Ready with a change and ApplyConfState: other members may have
// applied the change long ago.
func TestL5PendingChangeRefuses(t *testing.T) {
	s := begin(t, leasetest.Options{Spares: ids(4), Node: func(uint64) leasetest.NodeOptions {
		return leasetest.NodeOptions{Async: true, ApplyDelay: func() time.Duration { return 300 * ms }}
	}})
	s.lead(1)
	s.Run(time.Second)
	s.wantStatus(1, core.Valid)
	s.Node(1).Change(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(4))})
	s.Run(100 * ms)
	if got := len(s.Node(1).Conf().GetVoters()); got != 3 {
		t.Fatalf("node 1 has applied the change to %d voters, want 3 still", got)
	}
	s.wantStatus(1, core.ConfPending)
	s.Run(300 * ms)
	s.wantStatus(1, core.Valid)
}

// shrink begins with five voters, of which node 1 leads and advances early, and
// removes 5 and then 4 while the state machine of node 1 is late by as much. Raft lets
// the second change in, since it counts the first as applied.
func shrink(t *testing.T, late time.Duration) *story {
	var apply time.Duration
	s := begin(t, leasetest.Options{Voters: ids(1, 2, 3, 4, 5), Node: func(id uint64) leasetest.NodeOptions {
		if id != 1 {
			return leasetest.NodeOptions{}
		}
		return leasetest.NodeOptions{EarlyAdvance: true, ApplyDelay: func() time.Duration { return apply }}
	}})
	s.lead(1)
	s.Run(time.Second)
	s.wantStatus(1, core.Valid)
	apply = late
	s.remove(5)
	s.joined(2, func() bool { return len(s.Node(2).Conf().GetVoters()) == 4 })
	s.wantStatus(1, core.ConfPending)
	s.remove(4)
	s.Run(50 * ms)
	s.wantStatus(1, core.Disabled)
	if got := len(s.Node(1).Conf().GetVoters()); got != 5 {
		t.Fatalf("node 1 has applied changes: %d voters, want 5 still", got)
	}
	return s
}

// remove has node 1 propose that gone is removed.
func (s *story) remove(gone uint64) {
	s.Node(1).Change(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(gone)})
}

// wantMisuse fails the test unless Info of the node names a misuse with want.
func (s *story) wantMisuse(id uint64, want string) {
	s.t.Helper()
	err := s.Node(id).Lease().Info().Err
	if _, ok := errors.AsType[*leaderlease.MisuseError](err); !ok || !strings.Contains(err.Error(), want) {
		s.t.Fatalf("Info().Err of node %d = %v, want a *MisuseError with %q", id, err, want)
	}
}

// Two changes are in flight at a leader that calls Advance before ApplyConfState. Were
// the second one committed, nodes 2 and 3 would be a quorum without node 1, which counts
// by five voters still and commits with 4 and 5. The Lease holds the second change back
// until the first is applied, so no node is elected beside node 1.
func TestL5TheSecondLateChangeWaits(t *testing.T) {
	s := shrink(t, 10*time.Second)
	s.Run(500 * ms)
	for _, id := range ids(2, 3) {
		if got := len(s.Node(id).Conf().GetVoters()); got != 4 {
			t.Fatalf("node %d counts %d voters, want 4", id, got)
		}
	}
	s.Net.Split(ids(1, 4, 5), ids(2, 3))
	var acked uint64
	s.Node(1).Write(7, 1, func(v uint64) { acked = v })
	if s.campaign(5*time.Second, 2, 2, 3) {
		t.Error("node 2 was elected by 2 of 4 voters")
	}
	s.Run(10 * time.Second)
	if s.Node(1).Valid() || s.Node(2).Valid() {
		t.Errorf("acknowledged %d: a lease is valid: node 1 %v, node 2 %v", acked, s.Node(1).Valid(), s.Node(2).Valid())
	}
}

// A leader that has let two changes in has no lease, even after it has applied both. The next
// leader has one.
func TestL5TwoLateChangesAreAMisuse(t *testing.T) {
	s := shrink(t, 500*ms)
	s.wantMisuse(1, "before the one at")
	if !s.RunUntil(5*time.Second, func() bool { return len(s.Node(2).Conf().GetVoters()) == 3 }) {
		t.Fatal("node 2 has not applied the second change 5 s after it was proposed")
	}
	if got := len(s.Node(1).Conf().GetVoters()); got != 4 {
		t.Errorf("node 2 counts 3 voters while node 1 counts %d, want 4", got)
	}
	s.joined(1, func() bool { return len(s.Node(1).Conf().GetVoters()) == 3 })
	s.Run(time.Second)
	s.wantStatus(1, core.Disabled)
	s.wantMisuse(1, "before the one at")
	s.Net.Split(ids(1, 4, 5), ids(2, 3))
	s.electEarly(2, 2, 3)
	if !s.RunUntil(5*time.Second, s.Node(2).Valid) {
		t.Error("node 2 never led under a lease")
	}
}

// One change behind an early Advance is named while it is not applied. The lease comes
// back with ApplyConfState: configurations one change apart have overlapping quorums.
func TestL5OneLateChangeIsNamed(t *testing.T) {
	var apply time.Duration
	s := begin(t, leasetest.Options{Spares: ids(4), Node: func(uint64) leasetest.NodeOptions {
		return leasetest.NodeOptions{EarlyAdvance: true, ApplyDelay: func() time.Duration { return apply }}
	}})
	s.lead(1)
	s.Run(time.Second)
	apply = 500 * ms
	s.Node(1).Change(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(4))})
	s.Run(200 * ms)
	s.wantStatus(1, core.ConfPending)
	for _, id := range ids(1, 2, 3) {
		s.wantMisuse(id, "call ApplyConfChange of raft and ApplyConfState")
	}
	s.joined(1, func() bool { return len(s.Node(1).Conf().GetVoters()) == 4 })
	s.Run(time.Second)
	s.wantStatus(1, core.Valid)
	if err := s.Node(1).Lease().Info().Err; err != nil {
		t.Errorf("Info().Err = %v when the change is applied, want none", err)
	}
}

// An embedder that does not call ApplyConfState has no lease until it calls it. Info names the
// misuse.
func TestL5ForgottenApplyConfStateLeavesLeasesOff(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: ids(1), Spares: ids(2)})
	n := s.lead(1)
	change := []*raftpb.Entry{{
		Type: raftpb.EntryConfChange.Enum(), Term: new(n.Term()), Index: new(n.Applied() + 1),
	}}
	n.Lease().Ready(&raft.Ready{Entries: change, CommittedEntries: change})
	s.wantStatus(1, core.ConfPending)
	n.Lease().Applied(n.Applied() + 1)
	s.wantStatus(1, core.ConfPending)
	if _, ok := errors.AsType[*leaderlease.MisuseError](n.Lease().Info().Err); !ok {
		t.Errorf("Info().Err = %v, want a *MisuseError", n.Lease().Info().Err)
	}
	n.Lease().ApplyConfState(n.Applied()+1, n.Conf())
	s.wantStatus(1, core.Valid)
}

// grown is a group of nodes 1 to 3 with leader 3, to which nodes 4 and 5 are added, one after the
// other. Node 1 has both changes in its log when it is killed, and restarts with an older commit
// index. {1, 2} is a majority of the first configuration, {3, 4, 5} of the last one.
type grown struct {
	*story
	disk, apply time.Duration // of node 1
}

// forgets is how node 1 comes to forget that the first change is committed.
type forgets string

const (
	torn     forgets = "killed between entries and hard state"
	unsynced forgets = "the commit index was not synced"
)

func (how forgets) grow(t *testing.T, kind leasetest.DiskKind, alone, async bool) *grown {
	t.Helper()
	g := &grown{}
	g.story = begin(t, leasetest.Options{
		Voters: ids(1, 2, 3), Spares: ids(4, 5),
		NewDisk: func(_ uint64, conf *raftpb.ConfState) leasetest.Disk {
			if conf == nil { // the new nodes begin as the others did, and need no snapshot
				conf = &raftpb.ConfState{Voters: ids(1, 2, 3)}
			}
			return kind.NewDisk(conf)
		},
		Node: func(id uint64) leasetest.NodeOptions {
			// Raft asks for neither of the first two.
			o := leasetest.NodeOptions{Without: leasetest.Rules{CommitHints: true, DurableConf: true, RecoverCommit: alone}, Async: async}
			if id == 1 {
				o.DiskDelay = func() time.Duration { return g.disk }
				o.ApplyDelay = func() time.Duration { return g.apply }
			}
			return o
		},
	})
	g.lead(3)
	g.write(3, 7)
	g.Run(time.Second)
	switch how {
	case torn:
		g.isolate(1)
		g.add(4, 5)
		g.tearChanges()
	case unsynced:
		g.add(4, 5)
		g.Node(1).Crash(0)
	}
	return g
}

// add adds members one after the other.
func (g *grown) add(ids ...uint64) {
	g.t.Helper()
	for _, id := range ids {
		g.Node(3).Change(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(id)})
		done := func() bool {
			return len(g.Node(3).Conf().GetVoters()) == int(id) && len(g.Node(2).Conf().GetVoters()) == int(id)
		}
		if !g.RunUntil(5*time.Second, done) {
			g.t.Fatalf("node %d was not added: %v", id, g.Node(3).Conf())
		}
	}
	g.Run(200 * ms)
}

// tearChanges gives node 1 both changes in one append, and kills it in that write.
func (g *grown) tearChanges() {
	g.t.Helper()
	dead := false
	g.disk = 30 * ms
	g.Node(1).TearNext(func(entries []*raftpb.Entry) bool {
		changes := 0
		for _, e := range entries {
			if e.GetType() != raftpb.EntryNormal {
				changes++
			}
		}
		return changes == 2
	}, func() { dead = true })
	g.Net.Join(1, 3)
	if !g.RunUntil(5*time.Second, func() bool { return dead }) {
		g.t.Fatal("node 1 has got no append with both changes")
	}
	g.disk = 0
}

// elected parts the two majorities, starts node 1 and reports whether it is elected.
func (g *grown) elected() bool {
	g.t.Helper()
	g.Net.Heal()
	g.Net.Split(ids(1, 2), ids(3, 4, 5))
	g.Node(1).Options.Async = true // so that raft goes on while it applies
	g.Node(1).Restart()
	g.apply = 20 * ms
	return g.RunUntil(20*time.Second, func() bool { return g.Node(1).Role() == raft.StateLeader })
}

// Raft counts votes by the applied configuration, and a crash may lose the commit index of a change.
// A later change in the log proves the commit. Without that proof two leaders serve, each with a
// majority of its own.
func TestTheLogProvesThatChangesAreCommitted(t *testing.T) {
	for _, tt := range []struct {
		how    forgets
		kind   leasetest.DiskKind
		breaks bool
	}{
		{torn, leasetest.SeparateFiles, true},
		{torn, leasetest.OneLog, true},
		{torn, leasetest.AtomicBatches, false},
		{unsynced, leasetest.SeparateFiles, true},
		{unsynced, leasetest.OneLog, false},
		{unsynced, leasetest.AtomicBatches, false},
	} {
		for _, async := range []bool{false, true} {
			if g := tt.how.grow(t, tt.kind, false, async); g.elected() {
				t.Errorf("%s, disk kind %d, async %v: node 1 is elected by %v", tt.how, tt.kind, async, g.Node(1).Conf().GetVoters())
			}
			g := tt.how.grow(t, tt.kind, true, async)
			if broke := g.elected(); broke != tt.breaks {
				t.Errorf("%s, disk kind %d, async %v, by the hard state alone: node 1 is elected: %v, want %v", tt.how, tt.kind, async, broke, tt.breaks)
			} else if broke {
				g.wantStale()
			}
		}
	}
}

// wantStale has node 1 acknowledge a write, and node 3 not see it under its lease.
func (g *grown) wantStale() {
	g.t.Helper()
	version := g.write(1, 7)
	got, st := g.Node(3).TryRead(7)
	if st != leaderlease.StatusValid || got >= version || len(g.overlaps) == 0 {
		g.t.Errorf("node 3 reads version %d, %v, after node 1 has acknowledged version %d, overlaps %v: the control shows nothing", got, st, version, g.overlaps)
	}
}
