package kvnode

import (
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/internal/store"
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
				t.Errorf("nothing names %q: %s", word, log.String())
			}
		}
		if err := c.leader().UpdateMember(t.Context(), moved.ID(), []string{"http://m3.elsewhere:2380"}); err != nil {
			t.Fatal(err)
		}
	})
}

// A registry that may be an old one names nobody.
func TestAMemberThatHasMovedIsNotNamedByAnOldRegistry(t *testing.T) {
	var log lines
	n := &Node{replay: &replay{}}
	n.log = log.logger()
	n.replay.served = make(chan struct{})
	m := store.Member{ID: 2, Name: "m2", PeerURLs: []string{"http://old:2380"}}
	n.adviseMoved(&m, "http://new:2380")
	if log.all.Len() != 0 {
		t.Errorf("before the log is applied: %s, want nothing", log.String())
	}
	close(n.replay.served)
	n.adviseMoved(&m, "http://old:2380")
	n.adviseMoved(&m, "https://old:2380")
	if log.all.Len() != 0 {
		t.Errorf("of a member that has not moved: %s, want nothing", log.String())
	}
	for range 2 {
		n.adviseMoved(&m, "http://new:2380")
	}
	if got := log.count("a member advertises"); got != 1 {
		t.Errorf("%d lines, want one: %s", got, log.String())
	}
}
