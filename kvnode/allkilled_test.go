package kvnode

import (
	"slices"
	"testing"
	"time"
)

// After all members were killed and started again, the first election begins when their restart
// holds are over, and not an election timeout after the start.
func TestAfterAllWereKilledNoElectionTimeoutIsWaitedFor(t *testing.T) {
	var d disks
	inCluster(t, 3, d.use, func(t *testing.T, c *cluster) {
		c.put(c.leader(), "k", "v")
		time.Sleep(10 * time.Second) // what a former promise was is over
		c.crash(c.nodes["m1"], c.nodes["m2"], c.nodes["m3"])
		for i, apart := range []time.Duration{0, 40 * time.Millisecond, 15 * time.Millisecond} {
			time.Sleep(apart)
			c.start([]string{"m2", "m3", "m1"}[i])
		}
		began := time.Now()
		leader := c.leader()
		if took := time.Since(began); took < shortPromise/2 || took > shortPromise+300*time.Millisecond {
			t.Errorf("a leader serves %v after the last start, want about the restart hold of %v", took, shortPromise)
		}
		if value, _ := c.get(leader, ReadLease, "k"); value != "v" {
			t.Errorf("k = %q after the restart, want v", value)
		}
	})
}

// A member that restarts beside a leader that lives campaigns not, though its hold is over before
// an election timeout: the leader is heard first, and where it is not, nothing changes a term.
func TestARestartBesideALeaderChangesNoTerm(t *testing.T) {
	for _, cut := range []bool{false, true} {
		inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
			leader := c.leader()
			term := leader.Term()
			for _, n := range c.followers(leader) {
				name := n.Name()
				c.stop(name)
				if cut {
					c.net.Cut(leader.Name(), name)
				}
				n = c.start(name)
				time.Sleep(900 * time.Millisecond)
				if cut && n.Leader() != 0 {
					t.Errorf("%s, cut off from its leader, knows leader %x", name, n.Leader())
				}
				c.net.HealAll()
				c.put(c.leader(), "k", name)
			}
			if now := leader.Term(); now != term || leader.Leader() != leader.ID() {
				t.Errorf("cut off: %v: after each follower has restarted the term is %d and the leader %x, want %d and %x as before", cut, now, leader.Leader(), term, leader.ID())
			}
			if s := leader.Status().Suspicions; !slices.Equal(s.FailOvers[:], make([]uint64, len(s.FailOvers))) {
				t.Errorf("cut off: %v: fail-overs %v, want none", cut, s.FailOvers)
			}
		})
	}
}
