package kvnode

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
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

// Where the quorum is far away a batch is not held up for the whole round trip.
func TestWritesDoNotWaitForAFarQuorum(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "first", "v")
		time.Sleep(time.Second)
		c.delay(100 * time.Millisecond)
		first := leader.last.Load()
		const apart = 11 * time.Millisecond // longer than the queue holds a batch back
		wait := c.putApart(leader, 5, apart)
		synctest.Wait()
		if got := leader.last.Load() - first; got != 5 {
			t.Errorf("of 5 writes that came %v apart raft has taken %d before any was committed, want all", apart, got)
		}
		wait()
	})
}

// Without a quorum the second batch is held, and both go on once there is one.
func TestHeldWritesGoOnWithTheQuorum(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "first", "v")
		time.Sleep(time.Second)
		c.isolate(leader)
		stuck := make(chan error, 1)
		go func() { stuck <- put(t.Context(), leader, "stuck", "v") }()
		synctest.Wait()
		first := leader.last.Load()
		held := make(chan error, 1)
		go func() { held <- put(t.Context(), leader, "held", "v") }()
		synctest.Wait()
		if got := leader.last.Load(); got != first {
			t.Fatalf("raft has taken a second batch at once: last index %d, want %d", got, first)
		}
		c.net.HealAll()
		for _, result := range []chan error{stuck, held} {
			if err := <-result; err != nil {
				t.Errorf("put after the cluster is whole again: %v", err)
			}
		}
	})
}
