package kvnode

import (
	"testing"
	"testing/synctest"
	"time"
)

// What is checked for a read that is refused costs one that is served nothing.
func TestReadUnderTheLeaseAllocatesNothing(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		synctest.Wait() // all others wait for time, which passes only when this one does, too
		for _, mode := range []ReadMode{ReadLease, ReadSerializable} {
			if n := testing.AllocsPerRun(1000, func() {
				if _, err := leader.Read(t.Context(), mode); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("Read(%v) allocates %v times, want 0", mode, n)
			}
		}
	})
}

// Where nothing is waited for, the lease alone says yes: not on a follower, not once the lease
// has run out, and not where reads are made linearizable in another way.
func TestTryReadIsForTheLeaseAlone(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		synctest.Wait()
		for _, n := range append(c.followers(leader), leader) {
			if got := n.TryRead(); got != (n == leader) {
				t.Errorf("TryRead() = %v on %s; the leader is %s", got, n.Name(), leader.Name())
			}
		}
		c.isolate(leader)
		time.Sleep(5 * time.Second)
		if leader.TryRead() {
			t.Error("TryRead() = true of a leader that hears of nobody for 5 s")
		}
	})
	inCluster(t, 1, func(cfg *Config) { cfg.ReadMode = ReadIndex }, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		synctest.Wait()
		if n.TryRead() {
			t.Error("TryRead() = true where reads take a round")
		}
	})
}
