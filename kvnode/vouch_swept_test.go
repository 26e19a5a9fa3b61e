package kvnode

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/store"
)

// restartAt ends members and starts them at other hosts, without a word to the
// registry. The flags of all name the new hosts, and of others the old ones, too, unless
// somebody else is there now.
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
	c.t.Fatal("nobody leads")
	return nil
}

// flagged is at how many members flags say where others are.
func (c *cluster) flagged() (members int) {
	for _, n := range c.nodes {
		n.book.mu.Lock()
		if _, ok := n.book.mu.rosters[flagsPlace]; ok {
			members++
		}
		n.book.mu.Unlock()
	}
	return members
}

// Most members, or all, come back elsewhere after all were stopped. Nobody is where
// the registry says, and without a majority it cannot be changed: flags say where.
func TestFlagsSayWhereMembersAreForWantOfAMajority(t *testing.T) {
	for name, hosts := range map[string]map[string]string{
		"two of three": {"m2": "m2b", "m3": "m3b"},
		"all":          {"m1": "m1b", "m2": "m2b", "m3": "m3b"},
		// Somebody answers where the registry has others: they themselves, for one.
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
				time.Sleep(6 * vouchRenewal)
				leader := c.leading()
				c.put(leader, "k", "2")
				time.Sleep(3 * vouchRenewal) // they are asked again, and stay
				if n, want := c.flagged(), len(hosts); want == len(c.nodes) && n < want {
					t.Errorf("flags count at %d members before anybody is registered elsewhere, want all", n)
				}
				for _, suffix := range []string{".tmp", ""} { // no two may be registered at one place
					for name, host := range hosts {
						if err := leader.UpdateMember(t.Context(), c.nodes[name].ID(), peerURLs(host+suffix)); err != nil {
							t.Fatalf("UpdateMember(%s, %s): %v", name, host+suffix, err)
						}
					}
				}
				c.leader()
				time.Sleep(3 * vouchRenewal)
				if n := c.flagged(); n != 0 {
					t.Errorf("flags count at %d members once all are registered where they are, want them forgotten", n)
				}
			})
		})
	}
}

// Only who is known by that name is placed, and only where it has answered.
func TestPlaced(t *testing.T) {
	n := newNode(Config{Name: "m1", Cluster: []Member{
		{Name: "m1", PeerURLs: peerURLs("m1b")},
		{Name: "m2", PeerURLs: append(peerURLs("m2"), peerURLs("m2b")...)},
		{Name: "m3", PeerURLs: peerURLs("m4")},
		{Name: "m4", PeerURLs: peerURLs("m2")},
		{Name: "m5", PeerURLs: peerURLs("m5")},
	}}.WithDefaults())
	known := []store.Member{
		{ID: 1, PeerURLs: peerURLs("m1")},
		{ID: 2, Name: "m2", PeerURLs: peerURLs("m2")},
		{ID: 3, Name: "m3", PeerURLs: peerURLs("m3")},
		{ID: 4, Name: "m4", PeerURLs: peerURLs("m4")},
	}
	named := n.asker.namedByFlags(known, []bool{false, false, false, true})
	want := []store.Member{{ID: 2, Name: "m2", PeerURLs: peerURLs("m2b")}, {ID: 4, Name: "m4", PeerURLs: peerURLs("m2")}, {Name: "m5", PeerURLs: peerURLs("m5")}}
	if !reflect.DeepEqual(named, want) {
		t.Errorf("namedByFlags() = %+v, want %+v: m4 is where the registry says, m2 is not", named, want)
	}
	got := placed(named, []bool{true, false, true})
	if len(got) != 1 || got[0].ID != 2 || !slices.Equal(got[0].PeerURLs, peerURLs("m2b")) {
		t.Errorf("placed() = %+v, want member 2 at m2b alone", got)
	}
}

// Whoever answers in the place of another member is not that one.
func TestWhoAnswersSaysWho(t *testing.T) {
	inCluster(t, 2, nil, func(t *testing.T, c *cluster) {
		c.leader()
		m1, m2 := c.nodes["m1"], c.nodes["m2"]
		for _, test := range []struct {
			id   uint64
			at   string
			want bool
		}{
			{m2.ID(), "m2", true},
			{m2.ID(), "m1", false}, // it asks itself
			{m1.ID(), "m2", false},
			{0, "m2", true}, // not known by name
		} {
			if got := m1.asker.askRoster(t.Context(), &store.Member{ID: test.id, PeerURLs: peerURLs(test.at)}, false); got != test.want {
				t.Errorf("askRoster(%x at %s) = %v, want %v", test.id, test.at, got, test.want)
			}
		}
	})
}
