package kvnode

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// Found by review: a member that was down while another one was added refused its connections, even when the
// new member was the leader, the only source of the registration.
func TestALaggingMemberLetsANewLeaderIn(t *testing.T) {
	inCluster(t, 3, func(c *Config) { c.LaxReconfig = true }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		away, other := c.followers(leader)[0], c.followers(leader)[1]
		c.stop(away.Name())
		if _, err := leader.AddMember(t.Context(), peerURLs("m4"), false); err != nil {
			t.Fatal(err)
		}
		fourth := c.join("m4")
		c.applied(fourth, leader)
		time.Sleep(time.Second)
		if err := leader.RemoveMember(t.Context(), other.ID()); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, other)
		delete(c.nodes, other.Name())
		c.put(leader, "k", "v")
		// Two of three are up: the new one, and one that has never heard of it.
		c.crash(leader)
		back := c.start(away.Name())
		time.Sleep(30 * time.Second)
		hello := transport.Hello{From: fourth.ID(), Instance: fourth.id.Instance, PeerURLs: "http://m4:2380"}
		if err := (peers{back}).Admit(hello); reasonOf(err) != transport.ReasonUnknown || !strings.Contains(err.Error(), "Config.Cluster") {
			t.Errorf("the new member is refused with %v, want %q and what to do", err, transport.ReasonUnknown)
		}
		// Only the operator can say that the new one is a member.
		c.stop(away.Name())
		cfg := c.cfgs[away.Name()]
		cfg.Cluster = append(slices.Clone(cfg.Cluster), Member{Name: "m4", PeerURLs: peerURLs("m4")})
		c.cfgs[away.Name()] = cfg
		back = c.start(away.Name())
		if value, _ := c.get(c.leader(), ReadLease, "k"); value != "v" {
			t.Errorf("k = %q, want v", value)
		}
		c.applied(back, fourth)
	})
}

// Found by review: a majority of the initial members was enough to found a cluster, and
// one of them that had lost its directory could do so again, with a third that
// knew nothing. An acknowledged write was gone.
func TestInitialMembersWaitForAMemberThatKnows(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		for _, name := range []string{"m1", "m2", "m3"} {
			n := c.nodes[name]
			c.crash(n)
			if err := os.RemoveAll(n.cfg.DataDir); err != nil {
				t.Fatal(err)
			}
		}
		c.start("m1")
		c.start("m2")
		time.Sleep(10 * time.Second)
		c.crash(c.nodes["m1"]) // what it has in its log by now must not open it
		c.start("m1")
		time.Sleep(10 * time.Second)
		for name, n := range c.nodes {
			open := false
			n.call(func() { open = n.loop.admission.IsOpen() })
			if n.Leader() != 0 || open {
				t.Errorf("%s takes part (%v) and has leader %x without m3", name, open, n.Leader())
			}
		}
		c.start("m3")
		c.put(c.leader(), "k", "v")
		// From then on a majority is enough.
		for _, name := range []string{"m1", "m2", "m3"} {
			c.crash(c.nodes[name])
		}
		c.start("m1")
		c.start("m2")
		if value, _ := c.get(c.leader(), ReadLease, "k"); value != "v" {
			t.Errorf("k = %q, want v", value)
		}
	})
}

// Found by review: the acknowledgement of a snapshot was lost, and the follower
// refused it for ever when it was offered again.
func TestASnapshotThatIsNoNewsIsAcknowledged(t *testing.T) {
	few := func(c *Config) { c.SnapshotCount, c.CatchUpEntries = 50, 10 }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		leader := c.leader()
		away := c.followers(leader)[0]
		c.isolate(away)
		for i := range 300 {
			c.put(leader, "k", strings.Repeat("x", i))
		}
		before := away.Store().Applied()
		c.net.HealAll()
		c.net.Delay(leader.Name(), away.Name(), 50*time.Millisecond)
		for away.Store().Applied() == before {
			time.Sleep(time.Millisecond)
		}
		c.isolate(away)
		for _, n := range c.followers(away) {
			c.net.Reset(n.Name(), away.Name())
		}
		time.Sleep(700 * time.Millisecond)
		c.put(leader, "late", "v")
		c.net.HealAll()
		c.net.Delay(leader.Name(), away.Name(), 0)
		c.applied(away, leader)
	})
}

// Found by review: a change that a new leader had cut off was waited for, and
// writes waited behind the next one.
func TestWritesDoNotWaitForAChangeThatIsGone(t *testing.T) {
	inCluster(t, 3, func(c *Config) { c.LaxReconfig = true }, func(t *testing.T, c *cluster) {
		old := c.leader()
		time.Sleep(time.Second)
		c.isolate(old)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		for range 30 {
			go func() { _ = put(ctx, old, "lost", "v") }()
		}
		time.Sleep(50 * time.Millisecond)
		if _, err := old.AddMember(ctx, peerURLs("m4"), true); err == nil {
			t.Fatal("AddMember() without a quorum = nil, want an error")
		}
		c.leader(old)
		c.net.HealAll()
		c.leader()
		if _, err := old.AddMember(t.Context(), peerURLs("m5"), true); err != nil {
			t.Errorf("AddMember() = %v, want nil", err)
		}
		c.put(old, "k", "v")
	})
}

// Found by review: raft compares with what it was told is applied, which comes
// later, and dropped the second of two changes without a word.
func TestChangesInARow(t *testing.T) {
	inCluster(t, 1, func(c *Config) { c.LaxReconfig = true }, func(t *testing.T, c *cluster) {
		n := c.leader()
		ctx, cancel := context.WithCancel(t.Context())
		var load sync.WaitGroup
		defer load.Wait()
		defer cancel()
		for i := range 64 {
			load.Go(func() {
				for ctx.Err() == nil {
					_ = put(ctx, n, fmt.Sprint("k", i), "v")
				}
			})
		}
		for range often(100, 25) {
			m, err := n.AddMember(t.Context(), peerURLs("m2"), true)
			if err == nil {
				err = n.RemoveMember(t.Context(), m.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Found by review: a change larger than a message stopped all writes.
func TestChangesHaveALimit(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		if _, err := n.AddMember(t.Context(), []string{"http://m4:2380?" + strings.Repeat("<", 100)}, true); err == nil {
			t.Error("AddMember() with a query in the URL = nil, want an error")
		}
		many := slices.Repeat(peerURLs(strings.Repeat("m", 1000)), 2000)
		if _, err := n.AddMember(t.Context(), many, true); err == nil || !strings.Contains(err.Error(), "2000 peer URLs") {
			t.Errorf("AddMember() with 2 MB of URLs = %v, want an error that names their number", err)
		}
	})
}

// Found by review: a member that had joined, and was stopped before its log
// began, founded a cluster of its own when it was started as an initial member is.
func TestAJoinerNeverFounds(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		time.Sleep(time.Second)
		if _, err := leader.AddMember(t.Context(), peerURLs("m4"), true); err != nil {
			t.Fatal(err)
		}
		cfg := c.joining("m4").WithDefaults()
		if _, err := openIdentity(&cfg); err != nil {
			t.Fatal(err)
		}
		cfg.Existing = false
		c.cfgs["m4"] = cfg
		fourth := c.start("m4")
		if fourth.loop.bootstrapEntries != 0 {
			t.Fatal("its log begins with a cluster that it has founded")
		}
		c.applied(fourth, leader)
		if value, _ := c.get(fourth, ReadLease, "k"); value != "v" {
			t.Errorf("k = %q, want v", value)
		}
	})
}

// Found by review: raft switches to a snapshot's configuration when it is
// stepped, and was then switched back by an older change that the applier still
// had in its queue.
func TestAnOldChangeDoesNotUndoASnapshot(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		if err := n.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		conf := n.Store().Durable().ConfState
		change, err := membership.NewChangeEntry(raftpb.ConfChangeAddNode, &membership.ChangeContext{Member: store.Member{ID: 77, PeerURLs: peerURLs("m9")}})
		if err != nil {
			t.Fatal(err)
		}
		// What is applied is in the log.
		change.Index, change.Term = new(n.last.Load()), new(n.Term())
		n.call(func() { n.loop.restored = change.GetIndex() + 1 }) // as a Ready with a snapshot does
		if !n.applier.applyConf(change) {
			t.Fatal("applyConf() = false, want true")
		}
		var voters int
		n.call(func() { voters = len(n.loop.raw.Status().Config.Voters.IDs()) })
		if voters != len(conf.GetVoters()) {
			t.Errorf("raft counts %d voters, want %d as the snapshot has it", voters, len(conf.GetVoters()))
		}
		if _, there := n.Store().Members().ByID[77]; there {
			t.Error("the store has applied the change, too")
		}
		if n.applier.superseded != change.GetIndex()+1 {
			t.Errorf("superseded = %d, want %d: nothing is applied before the snapshot is restored", n.applier.superseded, change.GetIndex()+1)
		}
	})
}

// Found by review: Stop waited for the loop, whatever its context said.
func TestStopIsBoundedByItsContext(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		gate := make(chan struct{})
		n.calls.Push(func(*raftLoop) { <-gate })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _ = n.Stop(ctx) }()
		time.Sleep(2 * time.Second)
		if !n.life.IsStopping() {
			t.Error("Stop() has not begun to stop a second after its context has ended")
		}
		close(gate)
		wantEnd(t, n)
	})
}

// Found by review: a joiner took part at once. One that had lost its directory
// could join again through a member that had never met it, and the two outvoted
// the one that knew: an acknowledged write was gone.
func TestJoinersWaitForAMemberThatKnows(t *testing.T) {
	inCluster(t, 2, func(c *Config) { c.LaxReconfig = true }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		lags := c.followers(leader)[0]
		time.Sleep(time.Second)
		if _, err := leader.AddMember(t.Context(), peerURLs("m3"), false); err != nil {
			t.Fatal(err)
		}
		c.applied(lags, leader)
		c.stop(lags.Name()) // what is sent to one that is cut off may reach it later
		third := c.join("m3")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		acked := put(ctx, leader, "k", "v") == nil

		c.crash(leader)
		c.crash(third)
		if err := os.RemoveAll(third.cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		lags, third = c.start(lags.Name()), c.start("m3")
		time.Sleep(10 * time.Second)
		for _, n := range []*Node{lags, third} {
			if n.Leader() == n.ID() {
				value, path := c.get(n, ReadLease, "k")
				t.Errorf("%s leads without the member that knew; acknowledged: %v, read by %s: %q", n.Name(), acked, path, value)
			}
		}
	})
}
