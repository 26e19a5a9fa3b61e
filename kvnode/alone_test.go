package kvnode

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/transport"
)

// patient has a founder of one wait as long as the product does.
func patient(c *Config) { c.patience = 0 }

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
// which it was started first. With cut it reaches none of the others.
func (c *cluster) loseDirectory(cut bool) *Node {
	c.t.Helper()
	c.crash(c.nodes["m1"])
	if err := os.RemoveAll(c.cfgs["m1"].DataDir); err != nil {
		c.t.Fatal(err)
	}
	if cut {
		c.net.Cut("m1", "m2")
		c.net.Cut("m1", "m3")
	}
	return c.start("m1")
}

// ended waits until a member has ended by itself.
func (c *cluster) ended(n *Node, within time.Duration) error {
	c.t.Helper()
	select {
	case <-n.Done():
	case <-time.After(within):
		c.t.Fatalf("%s still runs after %v", n.Name(), within)
	}
	delete(c.nodes, n.Name())
	return n.Err()
}

// A founder of one that others have joined, and that has lost its directory, is
// called by them before it takes part: it never serves an empty store.
func TestAFounderOfOneThatLostItsDirectoryNeverServes(t *testing.T) {
	inCluster(t, 1, patient, func(t *testing.T, c *cluster) {
		c.grow()
		back := c.loseDirectory(true)
		time.Sleep(alonePatience - time.Second)
		c.net.HealAll() // the others try each second
		if _, err := back.Read(t.Context(), ReadLease); err == nil {
			t.Error("it has served a read from an empty store")
		}
		if err := c.ended(back, time.Minute); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "add it anew") {
			t.Errorf("Err() = %v, want ErrLost and what to do", err)
		}
		c.put(c.leader(), "k", "v")
		// Its directory is known to hold nothing that counts: it waits once more.
		again := c.start("m1")
		if err := c.ended(again, time.Minute); !errors.Is(err, ErrLost) {
			t.Errorf("Err() of the second start = %v, want ErrLost", err)
		}
	})
}

// Cut off from the others it cannot know. What it founds then is another cluster,
// and it ends once they reach it.
func TestAFounderOfOneThatIsCutOffFoundsAnotherCluster(t *testing.T) {
	inCluster(t, 1, patient, func(t *testing.T, c *cluster) {
		c.grow()
		old := c.nodes["m2"].ClusterID()
		back := c.loseDirectory(true)
		time.Sleep(2 * alonePatience)
		if err := put(t.Context(), back, "k", "stray"); err != nil {
			t.Errorf("put at the founder that is cut off = %v, want it served: it cannot be told from a first start", err)
		}
		if back.ClusterID() == old {
			t.Errorf("it serves as cluster %x, which is the one that it has lost", old)
		}
		c.net.HealAll()
		if err := c.ended(back, 10*time.Second); !errors.Is(err, ErrLost) {
			t.Errorf("Err() once the others reach it = %v, want ErrLost", err)
		}
		n := c.leader()
		if kv, _ := n.Store().Get([]byte("k")); kv != nil {
			t.Errorf("the others have heard of its writes: %v", kv)
		}
	})
}

// A first start takes part by itself, with an ID that no other founding has, and
// keeps it.
func TestAFounderOfOneDrawsItsID(t *testing.T) {
	inCluster(t, 1, patient, func(t *testing.T, c *cluster) {
		n := c.leader()
		first, member := n.ClusterID(), n.ID()
		c.put(n, "k", "v")
		c.stop("m1")
		begun := time.Now()
		n = c.start("m1")
		if _, err := n.Read(t.Context(), ReadLease); err != nil || time.Since(begun) >= alonePatience {
			t.Errorf("the first read after a restart took %v, %v, want no second wait", time.Since(begun), err)
		}
		if n.ClusterID() != first {
			t.Errorf("cluster %x after a restart, want %x", n.ClusterID(), first)
		}
		n = c.loseDirectory(true)
		if n.ClusterID() == first || n.ID() != member {
			t.Errorf("a second founding has cluster %x and member %x, want another cluster than %x, and member %x still", n.ClusterID(), n.ID(), first, member)
		}
	})
}

// A cluster of the past does not end one that has grown, one of another token, or
// one that was restored: there the operator has said what counts.
func TestStraysDoNotEndWhoeverTheyClaim(t *testing.T) {
	for name, found := range map[string]func(c *cluster, file string) *Node{
		"of another token": func(c *cluster, _ string) *Node {
			return c.restart("m1", true, func(cfg *Config) { cfg.Token = "new" })
		},
		"restored": func(c *cluster, file string) *Node {
			cfg := c.cfgs["m1"]
			c.crash(c.nodes["m1"])
			cfg.DataDir += "-restored"
			c.cfgs["m1"] = cfg
			if _, err := RestoreSnapshot(RestoreConfig{File: file, Name: "m1", DataDir: cfg.DataDir, Cluster: cfg.Cluster}); err != nil {
				c.t.Fatal(err)
			}
			return c.start("m1")
		},
		"grown": func(c *cluster, _ string) *Node {
			n := c.loseDirectory(true)
			time.Sleep(2 * alonePatience)
			if _, err := n.AddMember(c.t.Context(), peerURLs("m4"), true); err != nil {
				c.t.Fatal(err)
			}
			c.net.HealAll()
			return n
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, patient, func(t *testing.T, c *cluster) {
				c.grow()
				n := found(c, saveSnapshot(t, c.leader()))
				time.Sleep(time.Minute)
				if err := n.Err(); err != nil {
					t.Fatalf("Err() beside strays = %v", err)
				}
				c.put(n, "k", "v")
			})
		})
	}
}

// Anybody can say that a member is its own. It counts if the cluster that it is of
// has that member, as one that has run.
func TestAClaimIsNotBelievedUnasked(t *testing.T) {
	inCluster(t, 1, patient, func(t *testing.T, c *cluster) {
		n := c.leader()
		cfg := c.joining("m2")
		cfg.Cluster, cfg.Existing = cfg.Cluster[1:], false
		c.cfgs["m2"] = cfg
		other := c.start("m2") // a cluster of its own, which has no member m1
		if _, err := other.Read(t.Context(), ReadLease); err != nil {
			t.Fatal(err)
		}
		for name, url := range map[string]string{"a member of another cluster": "http://m2:2380", "nobody": "http://m9:2380", "itself": "http://m1:2380", "no URL": ""} {
			n.claimed(transport.Hello{ClusterID: other.ClusterID(), From: other.ID(), To: n.ID(), PeerURLs: url})
			time.Sleep(2 * time.Second)
			if err := n.Err(); err != nil {
				t.Fatalf("Err() after a claim by %s = %v", name, err)
			}
		}
	})
}

// Flags that would found a cluster again are said once others have joined.
func TestAFounderIsToldToChangeItsFlags(t *testing.T) {
	const advice = "give it --initial-cluster-state existing"
	var log lines
	inCluster(t, 1, func(c *Config) { patient(c); c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		c.leader()
		if got := log.count(advice); got != 0 {
			t.Errorf("%d lines to a founder that is alone, want none", got)
		}
		c.grow()
		if got := log.count(advice); got != 1 {
			t.Errorf("%d lines when others have joined, want one: %s", got, log.all.String())
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

func TestLoopback(t *testing.T) {
	for peer, want := range map[string]bool{
		"http://127.0.0.1:2380": true, "https://127.1.2.3:1": true, "http://[::1]:2380": true, "http://localhost:2380": true,
		"http://10.0.0.1:2380": false, "http://m1:2380": false, "http://0.0.0.0:2380": false, "http://[::]:2380": false, "://": false,
	} {
		if got := isLoopback(peer); got != want {
			t.Errorf("isLoopback(%q) = %v, want %v", peer, got, want)
		}
	}
}
