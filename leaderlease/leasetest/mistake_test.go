package leasetest

import (
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"
)

// An earlier process of node 3, without a mistake, has promised to node 1. The next process
// calls Ready wrongly, and so withholds no message there. Node 2, which is free and has the
// same log, requests its vote.
func TestMistakesWithReadyKeepAnEarlierPromise(t *testing.T) {
	for name, m := range map[string]Mistake{"never": NeverReady, "clones": SendsClones, "late": ReadyTooLate} {
		t.Run(name, func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, 1)
			c := New(Options{Node: func(uint64) NodeOptions {
				return NodeOptions{Mistake: func(run int) Mistake {
					if run == 1 {
						return NoMistake
					}
					return m
				}}
			}})
			if !c.Elect(1) {
				t.Fatal("Elect(1) = false")
			}
			c.Net.Split([]uint64{2}, []uint64{1, 3})
			c.Run(1500 * time.Millisecond) // node 2 is free
			one, two, three := c.Node(1), c.Node(2), c.Node(3)
			c.Net.Split([]uint64{3}, []uint64{1})
			c.Net.Join(2, 3)
			three.Crash(0)
			three.Restart()
			c.OnLeader = func(n *Node, term uint64) {
				if one.Valid() {
					t.Errorf("node %d wins term %d while node 1 holds the lease of term %d", n.ID, term, one.Term())
				}
			}
			if two.Campaign(); !one.Valid() {
				t.Fatal("node 1 has no lease")
			}
			if !c.RunUntil(10*time.Second, func() bool { return two.Role() == raft.StateLeader || three.Role() == raft.StateLeader }) {
				t.Error("no leader after the promise has ended")
			}
		})
	}
}

// If all nodes make the same mistake, no leader gets a lease, except a sole voter.
func TestMistakesWithReadyLeaveNoLease(t *testing.T) {
	for name, m := range map[string]Mistake{"never": NeverReady, "clones": SendsClones, "late": ReadyTooLate} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{Node: func(uint64) NodeOptions {
				return NodeOptions{Mistake: func(int) Mistake { return m }}
			}})
			c.Run(30 * c.opts.TickInterval * 10)
			l := c.Leader()
			if l == nil {
				t.Fatal("no leader")
			}
			if s := l.Lease().Info(); s.Valid() {
				t.Errorf("Info() = %+v, want no valid lease", s)
			}
		})
	}
}
