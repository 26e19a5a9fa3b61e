package kvnode

import (
	"maps"
	"slices"
	"testing"
	"time"
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

// Most members, or all, come back elsewhere after all were stopped. Nobody is where
// the registry says, and without a majority it cannot be changed: their configuration says where.
func TestMembersThatAreElsewhereElectALeader(t *testing.T) {
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
