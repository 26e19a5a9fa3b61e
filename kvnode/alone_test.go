package kvnode

import (
	"os"
	"testing"
	"time"
)

// grow has a cluster of one joined by m2 and m3.
func (c *cluster) grow() {
	c.t.Helper()
	for _, name := range []string{"m2", "m3"} {
		leader := c.leader()
		if _, err := leader.AddMember(c.t.Context(), peerURLs(name), false); err != nil {
			c.t.Fatal(err)
		}
		c.applied(c.join(name), leader)
		<-c.nodes[name].Published()
		time.Sleep(time.Second) // the leader is connected to it, too
	}
}

// loseDirectory ends m1, removes its directory and starts it with the flags with
// which it was started first.
func (c *cluster) loseDirectory() *Node {
	c.t.Helper()
	c.crash(c.nodes["m1"])
	if err := os.RemoveAll(c.cfgs["m1"].DataDir); err != nil {
		c.t.Fatal(err)
	}
	return c.start("m1")
}

// A first start takes part by itself, with an ID that no other founding has, and keeps it. A second founding, after the
// directory was lost, is another cluster. The others refuse it, and go on.
func TestTheOnlyInitialMemberDrawsItsID(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		first, member := n.ClusterID(), n.ID()
		c.put(n, "k", "v")
		c.stop("m1")
		n = c.start("m1")
		c.put(n, "k", "v")
		if n.ClusterID() != first {
			t.Errorf("cluster %x after a restart, want %x", n.ClusterID(), first)
		}
		c.grow()
		n = c.loseDirectory()
		if n.ClusterID() == first || n.ID() != member {
			t.Errorf("a second founding has cluster %x and member %x, want another cluster than %x, and member %x still", n.ClusterID(), n.ID(), first, member)
		}
		c.put(n, "l", "v")
		time.Sleep(time.Minute)
		if err := n.Err(); err != nil {
			t.Errorf("Err() of an initial member beside members of its former cluster = %v", err)
		}
		others := c.leader(n)
		if kv, _ := others.Store().Get([]byte("l")); kv != nil {
			t.Errorf("the others have heard of its writes: %v", kv)
		}
		c.put(others, "k", "v")
	})
}

// The only initial member, started by a former version that ended while it waited, takes part.
func TestTheOnlyInitialMemberOfAFormerVersion(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.crash(n)
		id, err := n.cfg.dir().Read()
		if err != nil {
			t.Fatal(err)
		}
		id.Admitted = false
		if err := n.cfg.dir().Write(&id); err != nil {
			t.Fatal(err)
		}
		c.put(c.start("m1"), "k", "v")
	})
}

// Flags that would found a cluster again are said once others have joined.
func TestAnInitialMemberIsToldToChangeItsFlags(t *testing.T) {
	const advice = "give it Config.Existing"
	var log lines
	inCluster(t, 1, func(c *Config) { c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		c.leader()
		if got := log.count(advice); got != 0 {
			t.Errorf("%d lines to an initial member that is alone, want none", got)
		}
		c.grow()
		if got := log.count(advice); got != 1 {
			t.Errorf("%d lines when others have joined, want one: %s", got, log.String())
		}
		cfg := c.cfgs["m1"]
		cfg.Cluster, cfg.Existing = c.cfgs["m3"].Cluster, true
		c.restart("m1", false, func(now *Config) { *now = cfg })
		c.leader()
		if got := log.count(advice); got != 1 {
			t.Errorf("%d lines after it was started as told, want no further one", got)
		}
		// And then a directory that is lost is not taken for a first start.
		c.crash(c.nodes["m1"])
		if err := os.RemoveAll(cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		c.net.Cut("m1", "m2")
		c.net.Cut("m1", "m3")
		if _, err := c.tryStart("m1"); err == nil {
			t.Error("Start() as told, with a lost directory and cut off, has founded a cluster")
		}
	})
}
