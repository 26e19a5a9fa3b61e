package kvnode

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// slowConn takes its time for what it writes.
type slowConn struct {
	net.Conn
	bytesPerSecond int
}

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(c.bytesPerSecond))
	return c.Conn.Write(b)
}

// slow has a member write so much a second to each of its peers.
func slow(cfg *Config, bytesPerSecond int) {
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return slowConn{conn, bytesPerSecond}, nil
	}
}

// All whom a member knows were replaced while it was away. Its flags name those who
// took their places, and it stays with them for as long as it takes to get what it
// lacks, which is a snapshot that is under way for many rounds of questions.
func TestFlagsLastUntilAMemberThatWasAwayKnowsTheOthers(t *testing.T) {
	amend := func(c *Config) { c.LaxReconfig, c.SnapshotCount, c.CatchUpEntries = true, 10, 1 }
	inCluster(t, 3, amend, func(t *testing.T, c *cluster) {
		c.leader()
		time.Sleep(time.Second)
		c.stop("m1")
		for _, name := range []string{"m4", "m5"} {
			leader := c.leader()
			if _, err := leader.AddMember(t.Context(), peerURLs(name), false); err != nil {
				t.Fatal(err)
			}
			cfg := c.joining(name)
			cfg.LaxReconfig, cfg.SnapshotCount, cfg.CatchUpEntries = true, 10, 1
			slow(&cfg, 1<<20)
			c.cfgs[name] = cfg
			<-c.start(name).Published()
		}
		for _, name := range []string{"m2", "m3"} {
			if err := c.leader().RemoveMember(t.Context(), c.nodes[name].ID()); err != nil {
				t.Fatal(err)
			}
			<-c.nodes[name].Done()
			delete(c.nodes, name)
		}
		leader := c.leader()
		for range 40 {
			c.put(leader, "k", strings.Repeat("x", 200<<10))
		}
		cfg := c.cfgs["m1"]
		cfg.Cluster = append(slices.Clone(cfg.Cluster[:1]), Member{Name: "m4", PeerURLs: peerURLs("m4")}, Member{Name: "m5", PeerURLs: peerURLs("m5")})
		c.cfgs["m1"] = cfg
		back := c.start("m1")
		c.appliedWithin(2*time.Minute, back, leader)
	})
}

// All whom a member knows were replaced while it was away, at the addresses that they
// had. Whoever is there is nobody that it knows, and is not there in their place, but
// says who is in the cluster.
func TestWhoIsAtAnOldAddressSaysWhoIsThere(t *testing.T) {
	inCluster(t, 4, func(c *Config) { c.LaxReconfig = true }, func(t *testing.T, c *cluster) {
		c.leader()
		time.Sleep(time.Second)
		c.stop("m1")
		for _, name := range []string{"m2", "m3", "m4"} {
			old := c.nodes[name]
			if err := c.leader().RemoveMember(t.Context(), old.ID()); err != nil {
				t.Fatal(err)
			}
			wantEnd(t, old)
			c.crash(old)
			if err := os.RemoveAll(old.cfg.DataDir); err != nil {
				t.Fatal(err)
			}
			if _, err := c.leader().AddMember(t.Context(), peerURLs(name), false); err != nil {
				t.Fatal(err)
			}
			<-c.join(name).Published()
		}
		leader := c.leader()
		c.appliedWithin(4*vouchRenewal, c.start("m1"), leader)
	})
}

// Both others have moved while a member was away. They are let in, for nobody asks
// where they call from, and one of them leads; but whoever is led is not heard. It is,
// once its flags name where they are.
func TestWhoIsLedButNotHeardAsksWhomFlagsName(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		c.leader()
		time.Sleep(time.Second)
		away := c.nodes["m1"]
		c.isolate(away)
		c.move("m2", "m2b", away, func(*Config) {})
		c.move("m3", "m3b", away, func(*Config) {})
		c.stop("m1")
		cfg := c.cfgs["m1"]
		cfg.Cluster = slices.Clone(cfg.Cluster)
		cfg.Cluster[1].PeerURLs, cfg.Cluster[2].PeerURLs = peerURLs("m2b"), peerURLs("m3b")
		c.cfgs["m1"] = cfg
		c.net.HealAll()
		back := c.start("m1")
		leader := c.leader(back)
		c.appliedWithin(4*vouchRenewal, back, leader)
	})
}

// A member that finds neither a leader nor a majority asks again, whether or not
// somebody calls.
func TestWhoFindsNobodyAsksAgain(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.naming("m9")
		c.leader()
		c.ghost(n, n.ClusterID())
		time.Sleep(2 * vouchRenewal)
		later := time.Now().Add(time.Hour)
		n.quiet.sought.mu.Lock() // what is lost on the way has nobody ask
		n.quiet.sought.until = map[uint64]time.Time{c.nodes["m1"].ID(): later, c.nodes["m2"].ID(): later, c.nodes["m3"].ID(): later}
		n.quiet.sought.mu.Unlock()
		c.isolate(n)
		for n.Leader() != 0 {
			time.Sleep(10 * time.Millisecond)
		}
		n.book.askAround()
		time.Sleep(minLonely * vouchRenewal)
		if _, ok := n.book.believed(99); !ok {
			t.Errorf("%v after it was asked to, a member has not asked m9, which its flags name", minLonely*vouchRenewal)
		}
	})
}
