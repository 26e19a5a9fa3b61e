package kvnode

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// delay makes every message between members take d.
func (c *cluster) delay(d time.Duration) {
	for a := range c.nodes {
		for b := range c.nodes {
			if a < b {
				c.net.Delay(a, b, d)
			}
		}
	}
}

// putApart begins puts a moment apart, and returns what waits for them.
func (c *cluster) putApart(n *Node, count int, apart time.Duration) (wait func()) {
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			if err := put(c.t.Context(), n, fmt.Sprint("k", i), "v"); err != nil {
				c.t.Errorf("put %d of %d: %v", i, count, err)
			}
		})
		time.Sleep(apart)
	}
	return all.Wait
}

// What arrives while a batch is on its way becomes the next one: a write by
// itself, then all that came within its round trip.
func TestWritesShareARoundTrip(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "first", "v")
		time.Sleep(time.Second) // everybody has heard of it
		c.delay(2 * time.Millisecond)
		const writes = 50
		before, begun := leader.wal.Stats(), time.Now()
		c.putApart(leader, writes, 20*time.Microsecond)()
		took, after := time.Since(begun), leader.wal.Stats()
		if entries, syncs := after.Entries-before.Entries, after.Syncs-before.Syncs; entries != writes || syncs > 2 {
			t.Errorf("%d writes in one round trip became %d entries in %d batches, want 2 at most", writes, entries, syncs)
		}
		if took > 10*time.Millisecond {
			t.Errorf("two round trips of 4ms took %v", took)
		}
	})
}
