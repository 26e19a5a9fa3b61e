package kvnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// do proposes r on n and fails unless it is carried out.
func (c *cluster) do(n *Node, r *pb.InternalRaftRequest) store.Result {
	c.t.Helper()
	res, err := n.Propose(c.t.Context(), r)
	if err = errors.Join(err, res.Err); err != nil {
		c.t.Fatalf("Propose(%v) on %s = %v", r, n.Name(), err)
	}
	return res
}

// grant makes a TTL lease with one key, named as its ID.
func (c *cluster) grant(n *Node, id, ttl int64) {
	c.t.Helper()
	c.do(n, &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: ttl}})
	c.do(n, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Append(nil, id), Lease: id}})
}

func (c *cluster) wantAlive(n *Node, id int64, want bool) {
	c.t.Helper()
	if _, err := n.Read(c.t.Context(), ReadAuto); err != nil {
		c.t.Fatal(err)
	}
	_, alive := n.Store().TTLLease(id)
	kv, _ := n.Store().Get(fmt.Append(nil, id))
	if alive != want || (kv != nil) != want {
		c.t.Fatalf("on %s TTL lease %d is there: %v, and its key: %v, want %v", n.Name(), id, alive, kv != nil, want)
	}
}

func (c *cluster) renew(n *Node, id int64) {
	c.t.Helper()
	if _, err := n.RenewTTL(c.t.Context(), id); err != nil {
		c.t.Fatalf("RenewTTL(%d) on %s = %v", id, n.Name(), err)
	}
}

func TestATTLLeaseLivesAsLongAsItIsRenewed(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		t.Run(fmt.Sprintf("leader leases disabled=%v", disabled), func(t *testing.T) {
			inCluster(t, 3, func(c *Config) { c.DisableLease = disabled }, func(t *testing.T, c *cluster) {
				leader := c.leader()
				follower := c.followers(leader)[0]
				c.grant(follower, 1, 5)
				for range 10 {
					time.Sleep(4 * time.Second)
					c.renew(leader, 1)
				}
				c.wantAlive(follower, 1, true)
				if _, err := follower.RenewTTL(t.Context(), 1); !errors.Is(err, ErrNotLeader) {
					t.Errorf("RenewTTL() on a follower = %v, want ErrNotLeader", err)
				}
				if _, err := follower.TTLLeft(t.Context(), 1); !errors.Is(err, ErrNotLeader) {
					t.Errorf("TTLLeft() on a follower = %v, want ErrNotLeader", err)
				}
				time.Sleep(5*time.Second - 10*time.Millisecond)
				c.wantAlive(leader, 1, true)
				time.Sleep(500 * time.Millisecond)
				for _, n := range c.nodes {
					c.wantAlive(n, 1, false)
				}
				if _, err := leader.RenewTTL(t.Context(), 1); !errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
					t.Errorf("RenewTTL() afterwards = %v, want %v", err, rpctypes.ErrGRPCLeaseNotFound)
				}
				if s := leader.Status().TTL; s.Renewals != 10 || s.Expirations != 1 {
					t.Errorf("TTLStats() = %+v, want 10 renewals and 1 expiration", s)
				}
			})
		})
	}
}

// A new leader does not know when a TTL lease was renewed last, so it gives it all
// its time. The old one, cut off, renews nothing, and what it had counted does not
// matter any more.
func TestFailOverGivesTheFullTTL(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.grant(old, 1, 10)
		time.Sleep(9 * time.Second)
		c.isolate(old)
		cut := time.Now()
		next := c.leader(old)
		elected := time.Since(cut)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if ttl, err := old.RenewTTL(ctx, 1); err == nil {
			t.Errorf("RenewTTL() on a leader that was deposed = %d, nil, want an error", ttl)
		}
		cancel()
		time.Sleep(10*time.Second - time.Since(cut) + elected - 300*time.Millisecond)
		c.wantAlive(next, 1, true)
		c.net.HealAll()
		time.Sleep(1500 * time.Millisecond)
		c.wantAlive(next, 1, false)
		if s := old.Status().TTL; s.Expirations != 0 || s.Leading {
			t.Errorf("TTLStats() of the old leader = %+v, want none", s)
		}
	})
}

// A killed leader is replaced within a quarter of a second, by a member that knows the remaining TTL of each TTL
// lease. A client has as long to find the new leader as after an election timeout.
func TestFailOverLeavesClientsTheTimeToComeBack(t *testing.T) {
	amend := func(cfg *Config) { cfg.TTLCheckpoint = 500 * time.Millisecond }
	inCluster(t, 3, amend, func(t *testing.T, c *cluster) {
		old := c.leader()
		time.Sleep(5 * time.Second) // until the format has risen
		c.grant(old, 1, 5)
		c.grant(old, 2, 5)
		time.Sleep(4800 * time.Millisecond)
		c.crash(old)
		died := time.Now()
		next := c.leader()
		if took := time.Since(died); took > 400*time.Millisecond {
			t.Fatalf("the next leader serves after %v, want the promise of 250ms", took)
		}
		time.Sleep(2400*time.Millisecond - time.Since(died))
		c.wantAlive(next, 1, true)
		c.renew(next, 1)
		time.Sleep(time.Second)
		c.wantAlive(next, 1, true)
		c.wantAlive(next, 2, false)
	})
}

// A leader that loses its quorum cannot know whether its keep-alives count.
func TestNoRenewalWithoutAQuorum(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.grant(leader, 1, 60)
		c.isolate(leader)
		for range 40 { // through the end of the lease, the step-down and the election
			valid := c.leaseStatus(leader) == core.Valid
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err := leader.RenewTTL(ctx, 1)
			cancel()
			if err == nil && !valid {
				t.Fatalf("RenewTTL() = nil without a valid lease and without a quorum")
			}
			if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNoLeader) {
				t.Errorf("RenewTTL() = %v, want ErrNotLeader, ErrNoLeader or the deadline", err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if leader.Leader() == leader.ID() {
			t.Error("the leader still leads")
		}
	})
}

// A leader whose disk hangs counts no time, and when the disk comes back it
// revokes nothing that was not due before.
func TestALeaderStuckOnItsDiskRevokesNothing(t *testing.T) {
	for _, tc := range []struct{ deposed, disabled bool }{{false, false}, {false, true}, {true, false}} {
		deposed := tc.deposed
		t.Run(fmt.Sprintf("deposed meanwhile=%v/leader leases disabled=%v", deposed, tc.disabled), func(t *testing.T) {
			inCluster(t, 3, func(c *Config) { c.DisableLease = tc.disabled }, func(t *testing.T, c *cluster) {
				stuck := c.leader()
				c.grant(stuck, 1, 10)
				time.Sleep(6 * time.Second)
				stuck.disk.WriteStarted() // and does not end
				leader := stuck
				if deposed {
					c.isolate(stuck) // as when it is stopped as a whole
					leader = c.leader(stuck)
				}
				for range often(20, 4) {
					time.Sleep(5 * time.Second)
					if deposed {
						c.renew(leader, 1)
					}
				}
				stuck.disk.WriteEnded()
				c.net.HealAll()
				time.Sleep(1200 * time.Millisecond)
				synctest.Wait()
				c.wantAlive(leader, 1, true)
				if s := stuck.Status().TTL; s.Expirations != 0 {
					t.Errorf("TTLStats() of the member that was stuck = %+v, want no expiration", s)
				}
				c.renew(leader, 1)
				time.Sleep(9 * time.Second)
				c.wantAlive(leader, 1, true)
				time.Sleep(2 * time.Second)
				c.wantAlive(leader, 1, false)
			})
		})
	}
}

// sleeper is a lease clock whose machine can sleep.
type sleeper struct {
	clock.Clock
	slept atomic.Int64
}

func (s *sleeper) Now() core.Instant {
	return s.Clock.Now().Add(time.Duration(s.slept.Load()))
}

// A machine that sleeps hears no keep-alives.
func TestALeaderThatSleptRevokesNothing(t *testing.T) {
	var clocks []*sleeper
	inCluster(t, 1, func(c *Config) {
		s := &sleeper{Clock: c.Clock}
		clocks = append(clocks, s)
		c.Clock = s
	}, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.grant(n, 1, 10)
		time.Sleep(9 * time.Second)
		clocks[0].slept.Add(int64(time.Hour))
		time.Sleep(1400 * time.Millisecond) // of which the rest of the TTL is 1 s
		c.wantAlive(n, 1, true)
		c.renew(n, 1)
		time.Sleep(9 * time.Second)
		c.wantAlive(n, 1, true)
		time.Sleep(2 * time.Second)
		c.wantAlive(n, 1, false)
	})
}

// What only a leader may do, and lay in its queue while it was deposed, reaches the
// next one, and is dropped: a revocation, a compaction.
func TestFencedWorkDoesNotOutliveItsTerm(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		term := old.Term()
		c.grant(old, 1, 60)
		c.isolate(old)
		c.leader(old)
		for old.Leader() == old.ID() {
			time.Sleep(50 * time.Millisecond)
		}
		l, _ := old.Store().TTLLease(1)
		var all sync.WaitGroup
		fenced := func(what string, res store.Result, err error) {
			if err != nil || !errors.Is(res.Err, store.ErrFenced) {
				t.Errorf("a %s of the old term = %+v, %v, want %v", what, res, err, store.ErrFenced)
			}
		}
		all.Go(func() {
			res, err := asTTLMember(old).ProposeFenced(t.Context(), term, &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 1}}, []uint64{l.Generation})
			fenced("revocation", res, err)
		})
		all.Go(func() {
			res, err := old.ProposeFenced(t.Context(), term, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 1}})
			fenced("compaction", res, err)
		})
		synctest.Wait()
		c.net.HealAll()
		all.Wait()
		for _, n := range c.nodes {
			c.wantAlive(n, 1, true)
		}
	})
}

// Time is nothing that is replicated: members agree on TTL leases whatever they
// went through, and a cluster that was restarted gives the full TTL.
func TestExpiryDoesNotShiftInSnapshots(t *testing.T) {
	few := func(c *Config) { c.SnapshotCount, c.CatchUpEntries = 20, 5 }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		leader := c.leader()
		away := c.followers(leader)[0]
		c.raised(leader)
		c.grant(leader, 1, 20)
		c.grant(leader, 2, 20)
		granted := leader.Store().TTLLeases()
		c.isolate(away)
		for range 100 {
			c.put(leader, "k", "v")
		}
		time.Sleep(15 * time.Second)
		c.renew(leader, 1)
		c.renew(leader, 2)
		c.net.HealAll()
		time.Sleep(5 * time.Second)
		for _, n := range c.nodes {
			if got := n.Store().TTLLeases(); !slices.Equal(got, granted) || len(got) != 2 || got[0].Generation == 0 || got[1].TTL != 20 {
				t.Errorf("TTLLeases() of %s = %+v, want 1 and 2 with 20 s: %+v", n.Name(), got, granted)
			}
			if keys := n.Store().TTLKeys(2); len(keys) != 1 || string(keys[0]) != "2" {
				t.Errorf("TTLKeys(2) of %s = %q, want 2", n.Name(), keys)
			}
		}
		for _, name := range []string{"m1", "m2", "m3"} {
			c.stop(name)
		}
		time.Sleep(time.Hour)
		for _, name := range []string{"m1", "m2", "m3"} {
			c.start(name)
		}
		leader = c.leader()
		time.Sleep(19 * time.Second)
		c.wantAlive(leader, 1, true)
		c.renew(leader, 1)
		time.Sleep(2 * time.Second)
		c.wantAlive(leader, 1, true)
		c.wantAlive(leader, 2, false)
	})
}
