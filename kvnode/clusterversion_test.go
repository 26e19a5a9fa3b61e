package kvnode

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// raised waits until the cluster has the newest cluster version.
func (c *cluster) raised(n *Node) {
	c.t.Helper()
	for range 100 {
		if n.Store().ClusterVersion() == store.ClusterVersionNewest {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Fatalf("%s has cluster version %d after 10 s, want %d", n.Name(), n.Store().ClusterVersion(), store.ClusterVersionNewest)
}

// version makes a member one of a version that knows no newer cluster version.
func version(clusterVersion int64) func(*Config) {
	return func(c *Config) { c.newestClusterVersion = clusterVersion }
}

// Members of two versions behave alike under each leader. The cluster version rises when the last old member is gone.
// Older TTL leases are revoked and kept as before.
func TestTheClusterVersionWaitsForTheLastOldMember(t *testing.T) {
	inCluster(t, 3, version(store.ClusterVersionFirst), func(t *testing.T, c *cluster) {
		c.grant(c.leader(), 1, 5)
		c.grant(c.leader(), 2, 5)
		for _, name := range []string{"m1", "m2"} {
			c.restart(name, false, version(store.ClusterVersionNewest))
			leader := c.leader()
			for _, n := range c.nodes {
				time.Sleep(3 * time.Second)
				c.renew(leader, 1)
				c.renew(leader, 2)
				if f := n.Store().ClusterVersion(); f != store.ClusterVersionFirst {
					t.Fatalf("%s has cluster version %d while m3 is old", n.Name(), f)
				}
			}
		}
		c.restart("m3", false, version(store.ClusterVersionNewest))
		leader := c.leader()
		for _, n := range c.nodes {
			c.raised(n)
			if l, ok := n.Store().TTLLease(1); !ok || l.Generation != 0 {
				t.Errorf("TTLLease(1) on %s = %+v, %v, want one without number", n.Name(), l, ok)
			}
		}
		c.grant(leader, 3, 5)
		for range 3 {
			time.Sleep(3 * time.Second)
			c.renew(leader, 2)
			c.renew(leader, 3)
		}
		for _, n := range c.nodes {
			c.wantAlive(n, 1, false) // nobody has renewed it
			c.wantAlive(n, 2, true)
			c.wantAlive(n, 3, true)
			if l, _ := n.Store().TTLLease(3); l.Generation == 0 {
				t.Errorf("TTLLease(3) on %s = %+v, want a number", n.Name(), l)
			}
		}
	})
}

// A member that comes back with an old version after all has said otherwise stops
// where the cluster version is raised, and goes on from there with the right version.
func TestAnOldMemberStopsWhereTheClusterVersionIsRaised(t *testing.T) {
	var logs lines
	inCluster(t, 3, version(store.ClusterVersionFirst), func(t *testing.T, c *cluster) {
		for _, name := range []string{"m1", "m2"} {
			c.restart(name, false, version(store.ClusterVersionNewest))
		}
		c.restart("m3", false, func(c *Config) { c.Logger = logs.logger() })
		victim, leader := c.nodes["m3"], c.leader()
		if leader == victim {
			if err := leader.transfers.transfer(t.Context(), c.nodes["m1"].ID()); err != nil {
				t.Fatal(err)
			}
			leader = c.nodes["m1"]
		}
		leader.versions.propose(store.ClusterVersionGenerations)
		c.raised(leader)
		wantEnd(t, victim)
		if err := victim.Err(); err == nil || !strings.Contains(err.Error(), "raises the cluster version to 2, and this version knows 1 to 1: start this member with") {
			t.Errorf("Err() = %v, want what to do about an old version", err)
		}
		old := transport.Hello{From: victim.ID(), Name: "m3", Instance: victim.id.Instance, PeerURLs: "http://m3:2380", ClusterVersion: store.ClusterVersionFirst}
		if err := (peers{leader}).Admit(old); reasonOf(err) != transport.ReasonOther || !strings.Contains(err.Error(), "knows cluster version 1, and the cluster has 2") {
			t.Errorf("Admit() of an old version = %v, want it refused", err)
		}
		delete(c.nodes, "m3")
		// A store of the second cluster version is made, and the old version looks again.
		c.grant(leader, 1, 1000)
		again := c.start("m3")
		wantEnd(t, again)
		// It is refused, or finds the entry in its own log first, and says which.
		if logs.count("is of a version that knows cluster version 1, and the cluster has 2: start it with the version of the others") == 0 &&
			!strings.Contains(fmt.Sprint(again.Err()), "raises the cluster version to 2") {
			t.Errorf("m3 ends with %v and does not log why it is refused", again.Err())
		}
		delete(c.nodes, "m3")
		c.raised(c.restart("m3", false, version(store.ClusterVersionNewest)))
		time.Sleep(2 * time.Second)
		want, _ := leader.Store().TTLLease(1)
		if got, ok := c.nodes["m3"].Store().TTLLease(1); !ok || got != want || want.Generation == 0 {
			t.Errorf("TTLLease(1) = %+v, %v, want %+v", got, ok, want)
		}
	})
}

// A revocation that is tried again after its ID was granted again has no effect.
func TestARevocationNamesItsGrant(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.raised(leader)
		c.grant(leader, 1, 1000)
		l, _ := leader.Store().TTLLease(1)
		req := &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 1}}
		revoke := func() (store.Result, error) {
			return asTTLMember(leader).ProposeFenced(t.Context(), leader.LeadingTerm(), req, []uint64{l.Generation})
		}
		if res, err := revoke(); err != nil || res.Err != nil {
			t.Fatalf("ProposeFenced() = %+v, %v", res, err)
		}
		c.grant(leader, 1, 1000)
		if res, err := revoke(); err != nil || res.Err == nil {
			t.Errorf("ProposeFenced() of a grant that is gone = %+v, %v, want that it is not found", res, err)
		}
		time.Sleep(time.Second)
		for _, n := range c.nodes {
			c.wantAlive(n, 1, true)
		}
		c.do(leader, req) // a client's: whichever there is
		c.wantAlive(leader, 1, false)
	})
}

// Each member of the newer version reports, once an hour and in its status, the members that keep the cluster version,
// under each leader, and also members that it never connected to.
func TestMembersThatKeepTheClusterVersionAreNamed(t *testing.T) {
	// Seventy minutes of heartbeats are many: here they are rare.
	old := func(cfg *Config) {
		cfg.newestClusterVersion, cfg.TickInterval, cfg.ElectionTimeout, cfg.LeaseDuration = store.ClusterVersionFirst, time.Second, 5*time.Second, 0
	}
	for i, c := range []struct {
		name, want string
		begin      func(t *testing.T, c *cluster)
	}{
		{"an old member leads", "m3 (http://m3:2380): knows cluster version 1", func(t *testing.T, c *cluster) {
			time.Sleep(30 * time.Second)
			if l := c.leader(); l != c.nodes["m3"] {
				if err := l.transfers.transfer(t.Context(), c.nodes["m3"].ID()); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"a member is down", "m3 (http://m3:2380): not connected", func(_ *testing.T, c *cluster) { c.crash(c.nodes["m3"]) }},
	} {
		if i == often(2, 1) {
			break
		}
		t.Run(c.name, func(t *testing.T) {
			var logs [2]lines
			inCluster(t, 3, old, func(t *testing.T, cl *cluster) {
				for i, name := range []string{"m1", "m2"} {
					cl.restart(name, false, func(cfg *Config) {
						cfg.newestClusterVersion, cfg.Logger = store.ClusterVersionNewest, logs[i].logger()
					})
				}
				c.begin(t, cl)
				time.Sleep(time.Hour + 10*time.Minute)
				for i, name := range []string{"m1", "m2"} {
					if got := logs[i].count(c.want); got != 2 {
						t.Errorf("%s says %q %d times in 70 minutes, want 2", name, c.want, got)
					}
					if s := cl.nodes[name].Status(); s.ClusterVersion != store.ClusterVersionFirst || !slices.Equal(s.ClusterVersionKeptBy, []string{c.want}) {
						t.Errorf("Status() of %s = cluster version %d, kept by %q, want 1, kept by %q", name, s.ClusterVersion, s.ClusterVersionKeptBy, c.want)
					}
				}
				cl.restart("m3", false, version(store.ClusterVersionNewest))
				for _, n := range cl.nodes {
					cl.raised(n)
					if s := n.Status(); s.ClusterVersion != store.ClusterVersionNewest || len(s.ClusterVersionKeptBy) > 0 {
						t.Errorf("Status() = cluster version %d, kept by %q, want the newest", s.ClusterVersion, s.ClusterVersionKeptBy)
					}
				}
			})
		})
	}
}
