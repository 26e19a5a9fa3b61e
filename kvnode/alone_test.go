package kvnode

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/admission"
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
		time.Sleep(admission.AlonePatience - time.Second)
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

// Whoever would call may be waiting for an answer of what was there before.
func TestAFounderOfOneWaitsForWhoIsStuck(t *testing.T) {
	inCluster(t, 1, patient, func(t *testing.T, c *cluster) {
		c.grow()
		c.crash(c.nodes["m1"])
		if err := os.RemoveAll(c.cfgs["m1"].DataDir); err != nil {
			t.Fatal(err)
		}
		before, err := c.net.Listen("m1:2380")
		if err != nil {
			t.Fatal(err)
		}
		for range 4 { // two links of each
			conn, err := before.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
		_ = before.Close()
		if err := c.ended(c.start("m1"), admission.AlonePatience); !errors.Is(err, ErrLost) {
			t.Errorf("Err() = %v, want ErrLost", err)
		}
	})
}

// A supervisor starts it again and again.
func TestAFounderOfOneUnderASupervisorNeverServes(t *testing.T) {
	inCluster(t, 1, patient, func(t *testing.T, c *cluster) {
		c.grow()
		back := c.loseDirectory(false)
		for range 30 {
			for back.Err() == nil {
				if back.Leader() == back.ID() {
					t.Fatal("it leads a cluster of one, though nobody is cut off")
				}
				time.Sleep(10 * time.Millisecond)
			}
			wantEnd(t, back)
			back = c.start("m1")
		}
	})
}

// The others may know it under another ID: it was removed and added anew, or has
// other peer URLs now.
func TestAFounderOfOneIsKnownByItsAddress(t *testing.T) {
	for name, change := range map[string]func(c *cluster, lost uint64) error{
		"added anew": func(c *cluster, lost uint64) error {
			if err := c.leader().RemoveMember(c.t.Context(), lost); err != nil {
				return err
			}
			_, err := c.leader().AddMember(c.t.Context(), peerURLs("m1"), false)
			return err
		},
		"updated": func(c *cluster, lost uint64) error {
			urls := append(peerURLs("m1"), "http://m9:2380")
			cfg := c.cfgs["m1"]
			cfg.Cluster = []Member{{Name: "m1", PeerURLs: urls}}
			c.cfgs["m1"] = cfg
			return c.leader().UpdateMember(c.t.Context(), lost, urls)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, patient, func(t *testing.T, c *cluster) {
				c.grow()
				lost := c.nodes["m1"]
				c.crash(lost)
				if err := change(c, lost.ID()); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(c.cfgs["m1"].DataDir); err != nil {
					t.Fatal(err)
				}
				if err := c.ended(c.start("m1"), admission.AlonePatience); !errors.Is(err, ErrLost) {
					t.Errorf("Err() = %v, want ErrLost", err)
				}
			})
		})
	}
}

// Whoever calls, but cannot be asked, holds it up for as long as that is so.
func TestAFounderOfOneWaitsForWhoCannotBeAsked(t *testing.T) {
	var log lines
	inCluster(t, 1, func(c *Config) { patient(c); c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		c.grow()
		cfg := c.cfgs["m1"]
		cfg.Dial = c.net.Dialer("outside")
		c.cfgs["m1"] = cfg
		c.net.Cut("outside", "m2")
		c.net.Cut("outside", "m3")
		back := c.loseDirectory(false)
		time.Sleep(time.Minute)
		if back.Leader() != 0 || back.Err() != nil {
			t.Fatalf("a minute after its start leader %x, Err() = %v, want that it waits", back.Leader(), back.Err())
		}
		if got := log.count("which cannot be asked"); got < 2 || got > 3 {
			t.Errorf("%d lines about who cannot be asked, want one in %v: %s", got, hushTime, log.all.String())
		}
		c.net.HealAll()
		if err := c.ended(back, 10*time.Second); !errors.Is(err, ErrLost) {
			t.Errorf("Err() once they can be asked = %v, want ErrLost", err)
		}
	})
}

// The wait is not over while somebody is being asked.
func TestAFounderOfOneWaitsForAnAnswer(t *testing.T) {
	inCluster(t, 1, patient, func(t *testing.T, c *cluster) {
		c.grow()
		back := c.loseDirectory(true)
		c.net.Delay("m1", "m2", 120*time.Millisecond)
		c.net.Delay("m1", "m3", 120*time.Millisecond)
		for range 50 { // whenever they come: it ends, or they were late
			time.Sleep(admission.AlonePatience - 700*time.Millisecond)
			c.net.HealAll()
			var asked atomic.Bool
			for back.Err() == nil && back.Leader() == 0 {
				back.call(func() {
					if back.loop.admission.IsAsking() {
						asked.Store(true)
					}
				})
				time.Sleep(time.Millisecond)
			}
			if asked.Load() && back.Leader() != 0 {
				t.Fatal("it leads, though somebody was asked who called in time")
			}
			back = c.loseDirectory(true)
		}
	})
}

// Cut off from the others it cannot know. What it founds then is another cluster. It
// does not end when they reach it: they may be the strays, for all it knows.
func TestAFounderOfOneThatIsCutOffFoundsAnotherCluster(t *testing.T) {
	var log lines
	const line = "another cluster has a member at this address"
	inCluster(t, 1, func(c *Config) { patient(c); c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		c.grow()
		old := c.nodes["m2"].ClusterID()
		back := c.loseDirectory(true)
		time.Sleep(2 * admission.AlonePatience)
		c.put(back, "k", "v")
		if back.ClusterID() == old {
			t.Errorf("it serves as cluster %x, which is the one that it has lost", old)
		}
		c.net.HealAll()
		time.Sleep(time.Minute)
		if got := log.count(line); got < 1 || got > 3 {
			t.Errorf("%d lines once the others reach it, want one in %v: %s", got, hushTime, log.all.String())
		}
		back = c.restart("m1", false, func(*Config) {})
		time.Sleep(time.Minute)
		c.put(back, "l", "v")
		if kv, err := back.Store().Get([]byte("k")); kv == nil {
			t.Errorf("what it has acknowledged is gone after a restart: %v", err)
		}
		n := c.leader(back)
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
		if _, err := n.Read(t.Context(), ReadLease); err != nil || time.Since(begun) >= admission.AlonePatience {
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
