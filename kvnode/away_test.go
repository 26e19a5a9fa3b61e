package kvnode

import (
	"context"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

// hand makes n the leader of all members except away.
func (c *cluster) hand(n *Node, away ...*Node) {
	c.t.Helper()
	<-n.Published()
	if l := c.leader(away...); l != n {
		if err := l.MoveLeader(c.t.Context(), n.ID()); err != nil {
			c.t.Fatal(err)
		}
	}
	c.put(n, "k", "v")
}

// move registers a member at another host, and starts it there with a certificate for that host only. away does not
// learn about it.
func (c *cluster) move(name, host string, away *Node, secure func(*Config)) *Node {
	c.t.Helper()
	if err := c.leader(away).UpdateMember(c.t.Context(), c.nodes[name].ID(), peerURLs(host)); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(time.Second)
	c.stop(name)
	certified := Config{Name: host, Dial: c.net.Dialer(host)}
	secure(&certified)
	cfg := c.cfgs[name]
	cfg.Cluster = slices.Clone(cfg.Cluster)
	cfg.Cluster[slices.IndexFunc(cfg.Cluster, func(m Member) bool { return m.Name == name })].PeerURLs = peerURLs(host)
	cfg.Dial, cfg.PeerTLS = certified.Dial, certified.PeerTLS
	var err error
	if cfg.Listener, err = c.net.Listen(host + ":2380"); err != nil {
		c.t.Fatal(err)
	}
	moved, err := Start(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[name] = moved
	c.leader(away)
	return moved
}

// configured restarts a member with another Config.Cluster.
func (c *cluster) configured(away *Node, members []Member) *Node {
	c.t.Helper()
	c.stop(away.Name())
	cfg := c.cfgs[away.Name()]
	cfg.Cluster = members
	c.cfgs[away.Name()] = cfg
	return c.start(away.Name())
}

// wantRefused waits until a member has logged that it refuses another one, and the other one that it was refused.
func (c *cluster) wantRefused(log *lines, reason, advice string) {
	c.t.Helper()
	time.Sleep(time.Minute)
	for _, what := range []string{"peer refused", "refused by a peer"} {
		if !slices.ContainsFunc(strings.Split(log.String(), "\n"), func(line string) bool {
			return strings.Contains(line, what) && strings.Contains(line, reason) && strings.Contains(line, advice)
		}) {
			c.t.Errorf("no line with %q, %q and %q: %s", what, reason, advice, log.String())
		}
	}
}

// A leader that moved while a member was away reaches that member. With certificates it needs one that is valid for
// a host where the member has it: by its registry or, once the operator has changed it, by its configuration.
func TestALeaderThatHasMoved(t *testing.T) {
	before := func(host string) string { return strings.TrimSuffix(host, "b") }
	for name, secure := range map[string]func(*Config){
		"plain text": nil, "mutual TLS": certified(t), "mutual TLS, for both hosts": certified(t, before),
	} {
		t.Run(name, func(t *testing.T) {
			var log lines
			inCluster(t, 3, func(cfg *Config) {
				cfg.Logger = log.logger()
				if secure != nil {
					secure(cfg)
				}
			}, func(t *testing.T, c *cluster) {
				c.leader()
				time.Sleep(time.Second)
				away := c.nodes["m3"]
				c.isolate(away)
				if secure == nil {
					secure = func(*Config) {}
				}
				m1 := c.move("m1", "m1b", away, secure)
				c.hand(m1, away)
				c.net.Reset("m1b", "m3")
				c.net.Reset("m2", "m3")
				c.net.HealAll()
				if name == "mutual TLS" {
					c.wantRefused(&log, transport.ReasonCertificate, "Config.Cluster")
					if away.Store().Applied() >= m1.Store().Applied() {
						t.Fatal("it hears from the leader, so this shows nothing")
					}
					away = c.configured(away, m1.cfg.Cluster)
				}
				c.appliedWithin(time.Minute, away, m1)
				c.stop("m2")
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := put(ctx, m1, "k", "3"); err != nil {
					t.Errorf("m2 has stopped, m1 and m3 are up: put on m1: %v", err)
				}
			})
		})
	}
}

// replaceLeader replaces m1 by a new member at a host, and makes that one the leader. away does not learn about it.
func (c *cluster) replaceLeader(host string, away *Node, secure func(*Config)) *Node {
	c.t.Helper()
	c.hand(c.nodes["m2"])
	time.Sleep(time.Second)
	old := c.nodes["m1"]
	c.isolate(away)
	if err := c.nodes["m2"].RemoveMember(c.t.Context(), old.ID()); err != nil {
		c.t.Fatal(err)
	}
	wantEnd(c.t, old)
	delete(c.nodes, "m1")
	delete(c.cfgs, "m1")
	if err := os.RemoveAll(old.cfg.DataDir); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.leader(away).AddMember(c.t.Context(), peerURLs(host), false); err != nil {
		c.t.Fatal(err)
	}
	cfg := c.joining(host)
	secure(&cfg)
	c.cfgs[host] = cfg
	c.net.Cut(host, away.Name())
	leader := c.start(host)
	c.hand(leader, away)
	for _, n := range c.followers(away) {
		c.net.Reset(n.Name(), away.Name()) // what is on its way must not arrive
	}
	c.net.HealAll()
	return leader
}

// The leader was replaced while a member was away. At the same host the new leader is accepted. At another one it is
// refused, with the advice, until the configuration of the member names it.
func TestALeaderThatHasReplacedAnother(t *testing.T) {
	for i, test := range []struct {
		name, host string
		certs      bool
	}{{"at the same host, with certificates", "m1", true}, {"at another", "m5", false}, {"at the same host", "m1", false}, {"at another, with certificates", "m5", true}} {
		if i == often(4, 2) {
			break
		}
		t.Run(test.name, func(t *testing.T) {
			secure := func(*Config) {}
			if test.certs {
				secure = certified(t)
			}
			var log lines
			inCluster(t, 4, func(cfg *Config) { cfg.LaxReconfig, cfg.Logger = true, log.logger(); secure(cfg) }, func(t *testing.T, c *cluster) {
				away := c.nodes["m3"]
				leader := c.replaceLeader(test.host, away, secure)
				if test.host == "m5" {
					c.wantRefused(&log, transport.ReasonUnknown, "Config.Cluster")
					if away.Store().Applied() >= leader.Store().Applied() {
						t.Fatal("it hears from the leader, so this shows nothing")
					}
					away = c.configured(away, leader.cfg.Cluster)
				}
				c.appliedWithin(time.Minute, away, leader)
				if leader.Leader() != leader.ID() {
					t.Errorf("%x leads, want %x still, or this shows nothing", leader.Leader(), leader.ID())
				}
			})
		})
	}
}

// slowConn limits the rate of writes.
type slowConn struct {
	net.Conn
	bytesPerSecond int
}

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(c.bytesPerSecond))
	return c.Conn.Write(b)
}

// slow limits what a member sends to each of its peers.
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

// All members that a member knows were replaced while it was away, at other hosts. Its configuration names the new
// ones, and it keeps their links until the snapshot that it needs has arrived.
func TestAllOthersWereReplaced(t *testing.T) {
	var log lines
	amend := func(c *Config) {
		c.LaxReconfig, c.SnapshotCount, c.CatchUpEntries, c.Logger = true, 10, 1, log.logger()
	}
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
		back := c.start("m1")
		c.wantRefused(&log, transport.ReasonUnknown, "Config.Cluster")
		back = c.configured(back, []Member{{Name: "m1", PeerURLs: peerURLs("m1")}, {Name: "m4", PeerURLs: peerURLs("m4")}, {Name: "m5", PeerURLs: peerURLs("m5")}})
		c.appliedWithin(2*time.Minute, back, leader)
	})
}

// All members that a member knows were replaced while it was away, at the same addresses.
func TestAllOthersWereReplacedWhereTheyWere(t *testing.T) {
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
		c.appliedWithin(time.Minute, c.start("m1"), leader)
	})
}

// Both others have moved while a member was away. It gives no advice about them, since its registry is old when they
// connect.
func TestAllOthersHaveMoved(t *testing.T) {
	var log lines
	inCluster(t, 3, func(cfg *Config) { cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
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
		const advice = "a member advertises other peer URLs"
		before := log.count(advice)
		back := c.start("m1")
		leader := c.leader(back)
		c.appliedWithin(time.Minute, back, leader)
		time.Sleep(10 * time.Second)
		if got := log.count(advice) - before; got != 0 {
			t.Errorf("%d lines of advice about members that are where the registry has them: %s", got, log.String())
		}
	})
}

// The configuration of a member has old URLs of the others, and packets to these are lost. A lost connection is dialled
// again at the URL that worked last, so the leader does not lose its followers while it dials the wrong host.
func TestAStaleConfigurationDoesNotDelayAReconnection(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		c.leader()
		cfg := c.cfgs["m1"]
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			if strings.HasPrefix(addr, "old") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx, addr)
		}
		c.cfgs["m1"] = cfg
		m1 := c.configured(c.nodes["m1"], []Member{
			{Name: "m1", PeerURLs: peerURLs("m1")}, {Name: "m2", PeerURLs: peerURLs("old2")}, {Name: "m3", PeerURLs: peerURLs("old3")},
		})
		c.hand(m1)
		time.Sleep(20 * time.Second)
		c.net.Reset("m1", "m2")
		c.net.Reset("m1", "m3")
		time.Sleep(500 * time.Millisecond)
		for _, n := range c.followers(m1) {
			if !isConnected(m1, n.ID()) {
				t.Errorf("m1 is not connected to %s", n.Name())
			}
		}
		// It may be dialling the wrong host when a member starts again, and that one calls.
		for i := 0; i < 8; i += often(1, 3) {
			c.stop("m2")
			time.Sleep(5*time.Second + time.Duration(i)*377*time.Millisecond)
			m2 := c.start("m2")
			time.Sleep(200 * time.Millisecond)
			if !isConnected(m1, m2.ID()) {
				t.Errorf("m1 is not connected to m2, which has started")
			}
			time.Sleep(20 * time.Second)
		}
	})
}

// A quorum needs a member that was away and one that was added meanwhile. Without a leader the first cannot learn about
// the second. Its configuration is the advice.
func TestAMajorityNeedsAMemberThatWasAway(t *testing.T) {
	var log lines
	inCluster(t, 3, func(cfg *Config) { cfg.LaxReconfig, cfg.Logger = true, log.logger() }, func(t *testing.T, c *cluster) {
		c.leader()
		c.hand(c.nodes["m1"])
		c.stop("m2")
		if _, err := c.leader().AddMember(t.Context(), peerURLs("m4"), false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		c.crash(c.nodes["m3"])
		delete(c.nodes, "m3")
		time.Sleep(10 * time.Second) // m1 leads no more
		m4 := c.join("m4")
		away := c.start("m2")
		c.wantRefused(&log, transport.ReasonUnknown, "Config.Cluster")
		if leader := away.Leader(); leader != 0 {
			t.Fatalf("%x leads, so this shows nothing", leader)
		}
		c.configured(away, m4.cfg.Cluster)
		c.put(c.leader(), "k", "v")
	})
}

// restartAt crashes all members and starts some at other hosts, without a change of the registry. Their configurations
// name the new hosts and, for other members, also the old hosts unless another member is there now.
func (c *cluster) restartAt(hosts map[string]string, secure func(*Config)) {
	c.t.Helper()
	for name := range c.cfgs {
		c.crash(c.nodes[name])
	}
	for name, cfg := range c.cfgs {
		cfg.Cluster = slices.Clone(cfg.Cluster)
		for i, m := range cfg.Cluster {
			if host, moved := hosts[m.Name]; moved {
				urls := peerURLs(host)
				if m.Name != name && !slices.Contains(slices.Collect(maps.Values(hosts)), m.Name) {
					urls = append(urls, m.PeerURLs...)
				}
				cfg.Cluster[i].PeerURLs = urls
			}
		}
		host := name
		if hosts[name] != "" {
			host = hosts[name]
		}
		certified := Config{Name: host, Dial: c.net.Dialer(host)}
		secure(&certified)
		cfg.Dial, cfg.PeerTLS = certified.Dial, certified.PeerTLS
		var err error
		if cfg.Listener, err = c.net.Listen(host + ":2380"); err != nil {
			c.t.Fatal(err)
		}
		if c.nodes[name], err = Start(cfg); err != nil {
			c.t.Fatal(err)
		}
	}
}

// leading returns a member that leads.
func (c *cluster) leading() *Node {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.Leader() == n.ID() {
			return n
		}
	}
	c.t.Fatal("no member leads")
	return nil
}

// Most members, or all, start at other hosts after all were stopped. The registry is wrong, and cannot be changed
// without a majority. The configurations name the new hosts.
func TestMembersThatAreElsewhereElectALeader(t *testing.T) {
	for name, hosts := range map[string]map[string]string{
		"two of three": {"m2": "m2b", "m3": "m3b"},
		"all":          {"m1": "m1b", "m2": "m2b", "m3": "m3b"},
		// Another member, or the member itself, answers where the registry has a member.
		"two have changed places":   {"m1": "m2", "m2": "m1"},
		"all are where others were": {"m1": "m2", "m2": "m3", "m3": "m1"},
		"one is where another was":  {"m2": "m2b", "m3": "m2"},
	} {
		secure := func(*Config) {}
		if name == "two have changed places" { // and certificates
			secure = certified(t)
		} else if testing.Short() {
			continue // the others differ in addresses only
		}
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, secure, func(t *testing.T, c *cluster) {
				c.put(c.leader(), "k", "1")
				for _, n := range c.nodes {
					<-n.Published()
					c.applied(n, c.leader())
				}
				c.restartAt(hosts, secure)
				time.Sleep(time.Minute)
				leader := c.leading()
				c.put(leader, "k", "2")
				for _, suffix := range []string{".tmp", ""} { // no two may be registered at one place
					for name, host := range hosts {
						if err := leader.UpdateMember(t.Context(), c.nodes[name].ID(), peerURLs(host+suffix)); err != nil {
							t.Fatalf("UpdateMember(%s, %s): %v", name, host+suffix, err)
						}
					}
				}
				c.put(c.leader(), "k", "3")
			})
		})
	}
}
