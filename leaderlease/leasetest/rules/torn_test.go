package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

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
			o := leasetest.NodeOptions{NoCommitHints: true, ForgetsChanges: true, HardStateAlone: alone, Async: async}
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
