package leasetest

import (
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease"
)

func mistakeSeeds(all uint64) uint64 {
	if testing.Short() || raceEnabled {
		return 2
	}
	return all
}

// Sending rd.Messages of a copy that was made before Ready was called was once the
// worst mistake: the lease looked valid, and votes leaked that promises forbid. Now
// it is no mistake: everything is judged as of nodes that make none.
func TestSendingACopyOfTheReadyIsHarmless(t *testing.T) {
	sum := &Result{}
	for seed := uint64(1); seed <= mistakeSeeds(8); seed++ {
		r := Simulate(t, SimConfig{Seed: seed, Node: func(_ uint64, o *NodeOptions) {
			o.Mistake = func(int) Mistake { return SendsCopy }
		}})
		r.Require(t)
		sum.Add(r)
	}
	if sum.AllLeaseReads() == 0 {
		t.Error("no read under a lease")
	}
}

// A node on which Ready is not called, or sees what nobody sends, has no lease and
// gives no promise out. Nor does it break what an earlier process of it promised,
// whose program was right: nodes change between both at each restart.
func TestMistakesWithReadyMakeNoReadStale(t *testing.T) {
	for name, m := range map[string]Mistake{"never": NeverReady, "clones": SendsClones, "late": ReadyTooLate} {
		t.Run(name, func(t *testing.T) {
			sum := &Result{}
			for seed := uint64(1); seed <= mistakeSeeds(4); seed++ {
				for first := range 2 {
					changes := 0
					r := Simulate(t, SimConfig{Seed: seed, SkipGuard: true, Misused: true, Node: func(id uint64, o *NodeOptions) {
						o.Mistake = everySecond(m, first+int(id), &changes)
					}})
					r.Require(t)
					sum.Add(r)
					if changes == 0 {
						t.Errorf("seed %d: no node has changed between right and wrong in %d crashes", seed, r.Crashes)
					}
				}
			}
			if sum.Elections == 0 || sum.Reads[leaderlease.PathLease] == 0 {
				t.Errorf("%d elections, %d reads under a lease, want some of both", sum.Elections, sum.Reads[leaderlease.PathLease])
			}
		})
	}
}

// everySecond lets every second process of a node make m, and counts how often the
// node changes.
func everySecond(m Mistake, first int, changes *int) func(process int) Mistake {
	var last Mistake
	known := false
	return func(process int) Mistake {
		now := m
		if (process+first)%2 == 0 {
			now = NoMistake
		}
		if known && now != last {
			*changes++
		}
		last, known = now, true
		return now
	}
}

// An earlier process of node 3, whose program was right, has promised to node 1.
// The next one never calls Ready, and so withholds nothing there. It is asked by node
// 2, which is free and has the same log.
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
				t.Error("nobody leads after the promise")
			}
		})
	}
}

// With one mistake everywhere there is no lease at all, but where a node is the
// only voter.
func TestMistakesWithReadyLeaveNoLease(t *testing.T) {
	for name, m := range map[string]Mistake{"never": NeverReady, "clones": SendsClones, "late": ReadyTooLate} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{Node: func(uint64) NodeOptions {
				return NodeOptions{Mistake: func(int) Mistake { return m }}
			}})
			c.Run(30 * c.opts.TickInterval * 10)
			l := c.Leader()
			if l == nil {
				t.Fatal("nobody leads")
			}
			if s := l.Lease().Info(); s.Valid() {
				t.Errorf("Info() = %+v, want no valid lease", s)
			}
		})
	}
}
