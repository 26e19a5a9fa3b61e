package kvnode

import (
	"fmt"
	"testing"
	"time"
)

// Whoever reads a log knows members by their names, other tools by their IDs: lines
// have both.
func TestLogsNameMembers(t *testing.T) {
	var log lines
	inCluster(t, 3, func(c *Config) { c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		named := fmt.Sprintf("%s (%x)", leader.Name(), leader.ID())
		if want := fmt.Sprintf("%q", named); log.count("leader="+want) == 0 || log.count("was=none") == 0 {
			t.Errorf("no line says leader=%s, or that there was none: %s", want, log.String())
		}
		c.crash(leader)
		time.Sleep(10 * time.Second)
		if want := fmt.Sprintf("peer=%q", named); log.count(`cannot connect to peer"`) == 0 || log.count(want) == 0 {
			t.Errorf("no line says %s: %s", want, log.String())
		}
	})
}
