package kvnode

import (
	"os"
	"path/filepath"
	"testing"
)

// A member whose peers.json was deleted says so, and knows its peers all the same.
func TestALostListOfAcquaintancesIsSaid(t *testing.T) {
	log := &lines{}
	inCluster(t, 3, func(c *Config) { c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		for _, n := range c.nodes {
			<-n.Published()
		}
		c.put(leader, "k", "v")
		victim := c.followers(leader)[0]
		for range 2 { // said once, as it is made again
			c.stop(victim.Name())
			if log.count("peers.json") == 0 {
				if err := os.Remove(filepath.Join(victim.cfg.DataDir, acquaintancesFile)); err != nil {
					t.Fatal(err)
				}
			}
			victim = c.start(victim.Name())
		}
		if got := log.count("peers.json, which says whom"); got != 1 {
			t.Errorf("it was said %d times that peers.json was gone, want once", got)
		}
		for _, n := range c.followers(victim) {
			first, err := victim.met.meet(n.ID(), "another")
			if err != nil || first != n.id.Instance {
				t.Errorf("%s was met as %s, %v, want %s", n.Name(), first, err, n.id.Instance)
			}
		}
	})
}
