package kvnode

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/raftwal"
)

// wipe removes the data directories of members that have stopped.
func (c *cluster) wipe(names ...string) {
	c.t.Helper()
	for _, name := range names {
		if err := os.RemoveAll(c.cfgs[name].DataDir); err != nil {
			c.t.Fatal(err)
		}
	}
}

// loseBeforeACheckpoint ends all members before their first checkpoint, removes the directories of some, and returns
// the others.
func (c *cluster) loseBeforeACheckpoint(wiped []string) (whole []string) {
	c.t.Helper()
	for _, n := range c.nodes {
		<-n.Published()
	}
	c.put(c.leader(), "k", "v")
	time.Sleep(time.Second)
	for name, n := range c.nodes {
		if n.Store().Durable().Index > 0 {
			c.t.Fatalf("%s has a checkpoint, so this shows nothing", name)
		}
		c.crash(n)
		if !slices.Contains(wiped, name) {
			whole = append(whole, name)
		}
	}
	c.wipe(wiped...)
	return whole
}

// wantWiped wants members to have ended before they took part, and the log to say why, by name.
func (c *cluster) wantWiped(log *lines, wiped []string) {
	c.t.Helper()
	for _, name := range wiped {
		n := c.nodes[name]
		if err := n.Err(); !errors.Is(err, ErrLost) {
			c.t.Errorf("%s: Err() = %v, want ErrLost", name, err)
		}
		if log.count(fmt.Sprintf("%x (\\\"%s\\\") has been in the cluster with another data directory", n.ID(), name)) == 0 {
			c.t.Errorf("no line names %s as wiped: %s", name, log.String())
		}
		if !n.waiting() {
			c.t.Errorf("%s has taken part", name)
		}
		wantEnd(c.t, n)
		delete(c.nodes, name)
	}
}

// All members stop before the first checkpoint, some lose their directories, and all start, in any order. Only the logs
// have the instances of the members then. A majority that has its directories goes on, and refuses the others by name.
// A minority goes on waiting, and there is no second cluster.
func TestWipedBeforeTheFirstCheckpoint(t *testing.T) {
	for _, test := range []struct {
		members int
		wiped   []string
		serves  bool
	}{
		{3, []string{"m3"}, true},
		{3, []string{"m2", "m3"}, false},
		{5, []string{"m4", "m5"}, true},
		{5, []string{"m3", "m4", "m5"}, false},
	} {
		for _, first := range []bool{true, false} { // the wiped ones start first
			t.Run(fmt.Sprintf("%v of %d, first %v", test.wiped, test.members, first), func(t *testing.T) {
				var log lines
				inCluster(t, test.members, func(cfg *Config) { cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
					whole := c.loseBeforeACheckpoint(test.wiped)
					order := [][]string{whole, test.wiped}
					if first {
						order = [][]string{test.wiped, whole}
					}
					for _, names := range order {
						for _, name := range names {
							c.start(name)
						}
						time.Sleep(20 * time.Second)
					}
					c.wantWiped(&log, test.wiped)
					if test.serves {
						if value, _ := c.get(c.leader(), ReadLease, "k"); value != "v" {
							t.Errorf("k = %q, want v", value)
						}
						return
					}
					for name, n := range c.nodes {
						if n.Leader() != 0 {
							t.Errorf("%s has leader %x, want none: the majority is gone", name, n.Leader())
						}
					}
				})
			})
		}
	}
}

// Founders that have met, and of which one is wiped before there is a leader, found their cluster: nothing was
// registered, so nothing is lost.
func TestWipedBeforeTheFirstElection(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		for _, n := range c.nodes {
			c.crash(n)
		}
		c.wipe("m1", "m2", "m3")
		c.start("m2")
		c.start("m3")
		time.Sleep(5 * time.Second)
		if n := len(c.nodes["m2"].Awaited()); n != 1 {
			t.Fatalf("m2 waits for %d others, want 1, as m3 has accepted it", n)
		}
		c.crash(c.nodes["m3"])
		c.wipe("m3")
		c.start("m3")
		c.start("m1")
		c.put(c.leader(), "k", "v")
		for name, n := range c.nodes {
			if err := n.Err(); err != nil {
				t.Errorf("%s: Err() = %v", name, err)
			}
			<-n.Published()
		}
	})
}

// A registration counts from when it is in the log of a member, committed or not, whatever the member has applied.
func TestRegistrationsInTheLogCount(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		for _, n := range c.nodes {
			<-n.Published()
		}
		leader := c.leader()
		c.put(leader, "k", "v")
		time.Sleep(time.Second)
		at, other := c.followers(leader)[0], c.followers(leader)[1]
		c.crash(leader, at, other)
		at = c.start(at.Name()) // alone, so that it applies nothing
		if known := at.Store().Members().ByID[other.ID()].Instance; known != "" {
			t.Fatalf("the registry has instance %q, so this shows nothing", known)
		}
		hello := transport.Hello{From: other.ID(), Instance: other.id.Instance, Format: store.FormatNewest, Log: other.atStart}
		if err := (peers{at}).Admit(hello); err != nil {
			t.Errorf("Admit() with the registered instance = %v", err)
		}
		hello.Instance = "another"
		if reason := reasonOf(peers{at}.Admit(hello)); reason != transport.ReasonWiped {
			t.Errorf("Admit() with another instance is refused for %q, want %q", reason, transport.ReasonWiped)
		}
	})
}

// While a snapshot that the log has taken is being restored, nothing is known of other members than those that are
// connected.
func TestInstancesWhileASnapshotIsRestored(t *testing.T) {
	inCluster(t, 2, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		other := c.followers(n)[0]
		time.Sleep(time.Second)
		dir := memberdir.Dir(t.TempDir())
		log, err := raftwal.Open(raftwal.Config{Dir: dir.Log()})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		at := &raftpb.SnapshotMetadata{Index: new(uint64(100)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1}}}
		if err := log.Save(nil, nil, &raftpb.Snapshot{Metadata: at}); err != nil {
			t.Fatal(err)
		}
		backend, err := boltdb.Open(dir.Path(memberdir.StateFile))
		if err != nil {
			t.Fatal(err)
		}
		empty, err := store.Open(store.Config{Backend: backend})
		if err != nil {
			t.Fatal(err)
		}
		defer empty.Close()
		p := &parts{store: empty, wal: log, links: n.links}
		if instance, err := p.instanceOf(other.ID()); instance != other.id.Instance || err != nil {
			t.Errorf("instanceOf() of a connected member = %q, %v, want %q", instance, err, other.id.Instance)
		}
		if instance, err := p.instanceOf(99); err == nil {
			t.Errorf("instanceOf() of another member = %q, want an error", instance)
		}
	})
}
