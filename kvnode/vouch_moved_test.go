package kvnode

import (
	"context"
	"slices"
	"testing"
	"time"
)

// move has a member registered, and started again, at another host, with a certificate
// for that one alone. away does not hear of it.
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

// A member that moved while another one was away, and leads now, reaches that one and
// is reached by it on the word of the third, which may go then.
func TestALeaderThatHasMovedIsLetIn(t *testing.T) {
	for name, secure := range map[string]func(*Config){"plain text": func(*Config) {}, "mutual TLS": certified(t)} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, secure, func(t *testing.T, c *cluster) {
				c.leader()
				time.Sleep(time.Second)
				away := c.nodes["m3"]
				c.isolate(away)
				m1 := c.move("m1", "m1b", away, secure)
				c.hand(m1, away)
				c.net.Reset("m1b", "m3")
				c.net.Reset("m2", "m3")
				c.net.HealAll()
				c.applied(away, m1)
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
