package kvnode

import (
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/transport"
)

// A member that was started with another peer URL than the cluster has for it is named
// by the others and by itself, with what to do, and not for ever.
func TestAMovedMemberIsNamed(t *testing.T) {
	var log lines
	inCluster(t, 3, func(cfg *Config) { cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		c.leader()
		time.Sleep(10 * time.Second)
		c.stop("m3")
		const what = "a member advertises other peer URLs"
		if got := log.count(what); got != 0 {
			t.Fatalf("%d lines before it has moved, want none", got)
		}
		cfg := c.cfgs["m3"]
		cfg.Cluster = append([]Member(nil), cfg.Cluster...)
		cfg.Cluster[2].PeerURLs = []string{"http://m3.elsewhere:2380"}
		c.cfgs["m3"] = cfg
		moved := c.start("m3")
		time.Sleep(10 * time.Second)
		if got := log.count(what); got != 3 {
			t.Errorf("%d lines, want one of each member", got)
		}
		for _, word := range []string{"http://m3:2380", "http://m3.elsewhere:2380", "member update"} {
			if log.count(word) == 0 {
				t.Errorf("nothing names %q: %s", word, log.all.String())
			}
		}
		if err := c.leader().UpdateMember(t.Context(), moved.ID(), []string{"http://m3.elsewhere:2380"}); err != nil {
			t.Fatal(err)
		}
	})
}

// A registry that is not up to date yet names nobody.
func TestAMemberThatHasMovedIsNotNamedByAnOldRegistry(t *testing.T) {
	var log lines
	inCluster(t, 1, func(cfg *Config) { cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		n := c.leader()
		m, err := n.AddMember(t.Context(), []string{"http://old:2380"}, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := n.UpdateMember(t.Context(), m.ID, []string{"http://new:2380"}); err != nil {
			t.Fatal(err)
		}
		c.crash(n)
		n = c.start("m1")
		if got := n.Store().Members().ByID[m.ID].PeerURLs[0]; got != "http://old:2380" {
			t.Fatalf("the registry has %s right after the start, want the old URL", got)
		}
		hello := transport.Hello{From: m.ID, Instance: "i", Name: "m2", PeerURLs: "http://new:2380", Format: n.cfg.newestFormat}
		for range 2 {
			if err := (*peers)(n).Admit(hello); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if got := log.count("advertises other peer URLs"); got != 0 {
			t.Errorf("%d lines, want none: %s", got, log.all.String())
		}
	})
}
