package kvnode

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/tlsconf"
	"github.com/leaderlease/go/kvnode/tlsconf/tlstest"
	"github.com/leaderlease/go/kvnode/transport"
)

// certified gives each member a certificate for its host. The authority is made in
// the bubble, whose time it keeps.
func certified(t *testing.T) func(*Config) {
	t.Helper()
	dir := t.TempDir()
	var ca *tlstest.Authority
	return func(c *Config) {
		if ca == nil {
			ca = tlstest.New(t, "ca")
		}
		side := tlsconf.Config{Peers: true, TrustedCAFile: tlstest.Write(t, dir, "ca", ca.PEM)}
		side.CertFile, side.KeyFile = ca.Issue([]string{c.Name}).Write(dir, c.Name)
		var err error
		if c.PeerTLS, err = tlsconf.New(side); err != nil {
			t.Fatal(err)
		}
	}
}

// reasonOf returns why err refuses a member, "" if it does not.
func reasonOf(err error) string {
	if refusal, ok := errors.AsType[*transport.Refusal](err); ok {
		return refusal.Reason
	}
	return ""
}

// A follower that was cut off while a member was added lets it in on the word of the
// others, and so hears from it that it was added: it is the leader. Another one that
// says it is that member is not let in.
func TestAMemberIsLetInOnceOthersVouchForIt(t *testing.T) {
	for name, secure := range map[string]func(*Config){"plain text": func(*Config) {}, "mutual TLS": certified(t)} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, secure, func(t *testing.T, c *cluster) {
				leader := c.leader()
				time.Sleep(time.Second)
				away := c.followers(leader)[0]
				c.isolate(away)
				m, err := leader.AddMember(t.Context(), peerURLs("m4"), false)
				if err != nil {
					t.Fatal(err)
				}
				cfg := c.joining("m4")
				secure(&cfg)
				c.cfgs["m4"] = cfg
				c.net.Cut("m4", away.Name())
				fourth := c.start("m4")
				c.hand(fourth, away)
				for _, n := range c.followers(away) {
					c.net.Reset(n.Name(), away.Name()) // what is on its way must not arrive
					if n != fourth {
						c.net.Heal(n.Name(), away.Name())
					}
				}
				hello := transport.Hello{From: m.ID, Instance: fourth.id.Instance, PeerURLs: "http://elsewhere:2380", Format: store.FormatNewest}
				if reason := reasonOf(peers{away}.Admit(hello)); reason != transport.ReasonUnknown {
					t.Errorf("Admit() before anybody was asked is refused for %q, want %q", reason, transport.ReasonUnknown)
				}
				time.Sleep(vouchPause)
				hello.Instance = "another"
				if reason := reasonOf(peers{away}.Admit(hello)); reason != transport.ReasonWiped {
					t.Errorf("Admit() with another directory is refused for %q, want %q", reason, transport.ReasonWiped)
				}
				if _, there := away.Store().Members().ByID[m.ID]; there {
					t.Fatal("the registry has the new member already, so nobody needs to vouch for it")
				}
				healed := time.Now()
				c.net.HealAll()
				c.applied(away, fourth)
				if took := time.Since(healed); took > 5*time.Second {
					t.Errorf("it has heard from the new leader after %v, want 5s at most", took)
				}
			})
		})
	}
}

// hand makes n the leader of all but away.
func (c *cluster) hand(n, away *Node) {
	c.t.Helper()
	<-n.Published()
	if l := c.leader(away); l != n {
		if err := l.MoveLeader(c.t.Context(), n.ID()); err != nil {
			c.t.Fatal(err)
		}
	}
	c.put(n, "k", "v")
}

// The same if the new member calls for the first time: nobody was asked before.
func TestANewLeaderIsLetInWithinSeconds(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		away := c.followers(leader)[0]
		c.isolate(away)
		if _, err := leader.AddMember(t.Context(), peerURLs("m4"), false); err != nil {
			t.Fatal(err)
		}
		c.net.Cut("m4", away.Name())
		fourth := c.join("m4")
		c.hand(fourth, away)
		time.Sleep(time.Minute)
		for _, n := range c.followers(away) {
			c.net.Reset(n.Name(), away.Name())
		}
		c.net.HealAll()
		healed := time.Now()
		c.applied(away, fourth)
		if took := time.Since(healed); took > 5*time.Second {
			t.Errorf("it has heard from the new leader after %v, want 5s at most", took)
		}
	})
}

// Whoever calls under IDs that nobody knows has members ask each other once a second
// at most, and leaves nothing behind.
func TestStrangersLeaveNothingBehind(t *testing.T) {
	var dials atomic.Int64
	counted := func(c *Config) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			dials.Add(1)
			return dial(ctx, addr)
		}
	}
	inCluster(t, 3, counted, func(t *testing.T, c *cluster) {
		n := c.leader()
		time.Sleep(time.Second)
		met, before, links := len(n.met.mu.instances), dials.Load(), len(n.links.Peers())
		for i := range uint64(2000) {
			hello := transport.Hello{From: 1 + i, Instance: "x", PeerURLs: "http://elsewhere:2380"}
			if reason := reasonOf(peers{n}.Admit(hello)); reason != transport.ReasonUnknown {
				t.Fatalf("Admit(%+v) is refused for %q, want %q", hello, reason, transport.ReasonUnknown)
			}
			time.Sleep(5 * time.Millisecond)
		}
		// 10 s have passed, and the two others have one address each.
		if asked := dials.Load() - before; asked == 0 || asked > 22 {
			t.Errorf("the others were asked %d times in 10s, want a round of 2 each second", asked)
		}
		if now := len(n.met.mu.instances); now != met {
			t.Errorf("%d members are remembered, want %d as before", now, met)
		}
		if now := len(n.links.Peers()); now != links {
			t.Errorf("there are links to %d peers, want %d as before", now, links)
		}
	})
}

// ghost answers at m9, which is no member, that the cluster has a member 99.
func (c *cluster) ghost(n *Node, clusterID uint64) {
	c.t.Helper()
	l, err := c.net.Listen("m9:2380")
	if err != nil {
		c.t.Fatal(err)
	}
	roster := func() (transport.Roster, error) {
		data, err := json.Marshal([]store.Member{{ID: 99, PeerURLs: peerURLs("m99")}})
		return transport.Roster{ClusterID: clusterID, Members: data}, err
	}
	links, err := transport.Start(transport.Config{
		Hello: transport.Hello{ClusterID: clusterID, From: 9}, Listener: l, Handler: peers{n}, Roster: roster,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = links.Close() })
}

// Whom Config.Cluster alone names has a say only while no majority of the
// registered voters is there.
func TestFlagsVouchOnlyForWantOfAMajority(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.followers(c.leader())[0]
		c.ghost(n, n.ClusterID())
		c.stop(n.Name())
		cfg := c.cfgs[n.Name()]
		cfg.Cluster = append(cfg.Cluster[:3:3], Member{Name: "m9", PeerURLs: peerURLs("m9")})
		c.cfgs[n.Name()] = cfg
		n = c.start(n.Name())
		c.leader()
		ask := func() string {
			for range 20 { // as whoever is refused does
				_, _ = n.book.peer(99)
				time.Sleep(vouchPause / 2)
			}
			_, err := n.book.peer(99)
			return reasonOf(err)
		}
		if reason := ask(); reason != transport.ReasonUnknown {
			t.Errorf("with a majority: a member that only m9 has named is refused for %q, want %q", reason, transport.ReasonUnknown)
		}
		c.isolate(n)
		if reason := ask(); reason != "" {
			t.Errorf("without: a member that m9 has named is refused for %q, want it known", reason)
		}
		c.net.HealAll()
		c.leader()
		_, _ = n.book.peer(98)
		time.Sleep(10 * vouchPause)
		_, _ = n.book.peer(98)
		time.Sleep(vouchPause)
		if _, err := n.book.peer(99); reasonOf(err) != transport.ReasonUnknown {
			t.Error("with a majority again: what m9 has said counts, want it forgotten")
		}
	})
}

// What an address of another cluster says does not count.
func TestRostersOfOtherClustersDoNotVouch(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		if !n.asker.askRoster(t.Context(), &store.Member{PeerURLs: peerURLs("m1")}, false) {
			t.Error("askRoster() of a member of this cluster = false, want true")
		}
		c.ghost(n, n.ClusterID()+1)
		if n.asker.askRoster(t.Context(), &store.Member{PeerURLs: peerURLs("m9")}, false) {
			t.Error("askRoster() of a member of another cluster = true, want false")
		}
		if _, err := n.book.peer(99); reasonOf(err) != transport.ReasonUnknown {
			t.Errorf("peer() of a member that another cluster has = %v, want it unknown", err)
		}
	})
}

// Registry and roster know instances. Rosters of former versions have digests, which are recognised.
func TestInstancesAreRecognised(t *testing.T) {
	const instance = "QY5VCBQEKN4ZMRUWNZ6ANFJJM4"
	const digest = "sha256:8039395363135555c9d3539ee64e4677"
	for _, test := range []struct {
		name, known, instance string
		want                  bool
	}{
		{"none yet", "", instance, true},
		{"the registry's", instance, instance, true},
		{"another than the registry's", instance, "x", false},
		{"a former roster's", digest, instance, true},
		{"another than a former roster's", digest, "x", false},
		{"the digest itself", digest, digest, false},
	} {
		if got := isInstance(test.known, test.instance); got != test.want {
			t.Errorf("%s: isInstance(%q, %q) = %v, want %v", test.name, test.known, test.instance, got, test.want)
		}
	}
	var v vouchers
	v.note("a:1", roster{members: []store.Member{{ID: 1, PeerURLs: peerURLs("b"), Instance: instance}}})
	v.note("b:1", roster{members: []store.Member{{ID: 1, PeerURLs: peerURLs("a")}, {ID: 2}}})
	m, ok := v.named(1, 0, false, false)
	if !ok || !isInstance(m.Instance, instance) || isInstance(m.Instance, "x") || len(m.PeerURLs) != 2 {
		t.Errorf("named(1) = %+v, %v, want both URLs and the instance", m, ok)
	}
	if m, ok := v.named(3, 0, false, false); ok {
		t.Errorf("named(3) = %+v, want none", m)
	}
}

// The roster has the instance of each member that has started, and no other.
func TestARosterHasInstances(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		<-n.Published()
		if _, err := n.AddMember(t.Context(), peerURLs("m2"), true); err != nil {
			t.Fatal(err)
		}
		r, err := transport.Ask(t.Context(), c.net.Dialer("anybody"), "m1:2380")
		if err != nil {
			t.Fatal(err)
		}
		var members []store.Member
		if err := json.Unmarshal(r.Members, &members); err != nil || len(members) != 2 {
			t.Fatalf("the roster is %s, %v, want two members", r.Members, err)
		}
		for _, m := range members {
			want := ""
			if m.ID == n.ID() {
				want = n.id.Instance
			}
			if len(m.ClientURLs) > 0 {
				t.Errorf("of member %x the roster says client URLs %q, want none", m.ID, m.ClientURLs)
			}
			if m.Instance != want {
				t.Errorf("of member %x the roster says instance %q, want %q", m.ID, m.Instance, want)
			}
		}
		// A member that was there before, with another directory, is found out.
		cfg := c.cfgs["m1"]
		cfg.DataDir = filepath.Join(t.TempDir(), "lost")
		cfg = cfg.WithDefaults()
		if _, err := cfg.joinAs(r); !errors.Is(err, ErrLost) {
			t.Errorf("joinAs() of a member that has started = %v, want ErrLost", err)
		}
	})
}
