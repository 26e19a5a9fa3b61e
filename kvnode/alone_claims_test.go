package kvnode

import (
	"os"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/admission"
	"github.com/leaderlease/go/kvnode/transport"
)

// A cluster of the past does not end one of another token, one that others found with
// this member, or one that was restored: there the operator has said what counts.
func TestStraysDoNotEndWhoeverTheyClaim(t *testing.T) {
	for name, found := range map[string]func(c *cluster, file string) *Node{
		"of another token": func(c *cluster, _ string) *Node {
			return c.restart("m1", true, func(cfg *Config) { cfg.Token = "new" })
		},
		"founded with another": func(c *cluster, _ string) *Node {
			cfg := c.joining("m4")
			cfg.Cluster, cfg.Existing = []Member{{Name: "m1", PeerURLs: peerURLs("m1")}, {Name: "m4", PeerURLs: peerURLs("m4")}}, false
			c.cfgs["m4"] = cfg
			n := c.restart("m1", true, func(own *Config) { own.Cluster = cfg.Cluster })
			time.Sleep(admission.AlonePatience)
			c.start("m4")
			return n
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

// Anybody can call a member. It ends only if the caller's cluster has a member there,
// and it is held up only by whom it cannot ask.
func TestAClaimIsNotBelievedUnasked(t *testing.T) {
	for name, test := range map[string]struct {
		url  string
		held bool
	}{
		"a member of another cluster": {"http://m2:2380", false},
		"nobody":                      {"http://m9:2380", true},
		"itself":                      {"http://m1:2380", true},
		"no URL":                      {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 1, patient, func(t *testing.T, c *cluster) {
				n := c.nodes["m1"]
				cfg := c.joining("m2")
				cfg.Cluster, cfg.Existing, cfg.patience = cfg.Cluster[1:], false, time.Nanosecond
				c.cfgs["m2"] = cfg
				other := c.start("m2") // a cluster of its own, which has no member m1
				if _, err := other.Read(t.Context(), ReadLease); err != nil {
					t.Fatal(err)
				}
				time.Sleep(admission.AlonePatience / 2)
				n.asker.claimed(t.Context(), transport.Hello{ClusterID: other.ClusterID(), From: other.ID(), To: n.ID(), PeerURLs: test.url})
				time.Sleep(admission.AlonePatience/2 + 2*time.Second)
				if leads := n.Leader() == n.ID(); leads == test.held {
					t.Errorf("it leads after %v = %v, want %v", admission.AlonePatience, leads, !test.held)
				}
				time.Sleep(admission.AlonePatience / 2)
				if n.Leader() != n.ID() || n.Err() != nil {
					t.Errorf("leader %x, Err() = %v %v after the claim, want that it leads", n.Leader(), n.Err(), admission.AlonePatience)
				}
			})
		})
	}
}

// Flags that would found a cluster again are said once others have joined.
func TestAFounderIsToldToChangeItsFlags(t *testing.T) {
	const advice = "give it Config.Existing"
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
