package kvnode

import (
	"testing"
	"time"
)

// far has messages between any two members take that long.
func (c *cluster) far(way time.Duration) {
	names := []string{"m1", "m2", "m3"}
	for i, a := range names {
		for _, b := range names[i+1:] {
			c.net.Delay(a, b, way)
		}
	}
}

// A cluster is founded though an election takes longer than a tick.
func TestFoundersThatAreFarApart(t *testing.T) {
	for _, way := range []time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 100 * time.Millisecond} {
		inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
			c.far(way)
			begun := time.Now()
			for _, n := range c.nodes {
				for n.Leader() == 0 && time.Since(begun) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
			}
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("one way %v: a leader is known to all after %v, want 3s at most", way, took)
			}
		})
	}
}

// Where answers take longer than what promises leave beside the margin, no lease is ever
// held. Time passes for TTL leases all the same.
func TestTTLLeasesEndWhereNoLeaseIsHeld(t *testing.T) {
	for _, way := range []time.Duration{60 * time.Millisecond, 80 * time.Millisecond, 200 * time.Millisecond} {
		inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
			c.leader()
			c.far(way)
			time.Sleep(3 * time.Second)
			leader := c.leader()
			c.grant(leader, 1, 5)
			time.Sleep(4900 * time.Millisecond)
			c.wantAlive(leader, 1, true)
			time.Sleep(10 * time.Second)
			c.wantAlive(leader, 1, false)
		})
	}
}
