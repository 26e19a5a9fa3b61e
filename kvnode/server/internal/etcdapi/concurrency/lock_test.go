package concurrency

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/server/internal/etcdapi"
	epb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3lockpb"
)

// Unlock serves waiting callers at any member in order, and the create revisions of their keys
// increase.
func TestUnlockHandsOver(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		first, err := lockBy(t.Context(), leader, 0)()
		must(t, err)
		second := waits(c, lockBy(t.Context(), follower, 0))
		third := waits(c, lockBy(t.Context(), leader, 0))
		keys := c.keys()
		if len(keys) != 3 || keys[0] != string(first.GetKey()) {
			t.Fatalf("keys = %q, want three, %q first", keys, first.GetKey())
		}
		for i, next := range []<-chan answer[*lpb.LockResponse]{second, third} {
			_, err := follower.lock.Unlock(t.Context(), &lpb.UnlockRequest{Key: []byte(keys[i])})
			must(t, err)
			a := <-next
			must(t, a.err)
			if got := string(a.v.GetKey()); got != keys[i+1] {
				t.Errorf("the lock went to %q, want %q", got, keys[i+1])
			}
			if len(c.keys()) != 2-i {
				t.Errorf("keys = %q after %d were unlocked, want %d", c.keys(), i+1, 2-i)
			}
		}
	})
}

// The header of an uncontended Lock has the fencing token. Locking twice with one TTL lease is
// locking once.
func TestLockTwiceIsOnce(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		lease := c.grant(60)
		m := c.members[0]
		first, err := lockBy(t.Context(), m, lease)()
		must(t, err)
		kv, err := m.kv.Range(t.Context(), &pb.RangeRequest{Key: first.GetKey()})
		must(t, err)
		if got := kv.GetKvs()[0]; got.GetCreateRevision() != first.GetHeader().GetRevision() || got.GetLease() != lease {
			t.Errorf("key = %v, want it created at %d for TTL lease %d", got, first.GetHeader().GetRevision(), lease)
		}
		second, err := lockBy(t.Context(), m, lease)()
		must(t, err)
		if string(first.GetKey()) != string(second.GetKey()) || len(c.keys()) != 1 || c.leases() != 1 {
			t.Errorf("Lock() twice = %q and %q over %d TTL leases, want one key and one lease", first.GetKey(), second.GetKey(), c.leases())
		}
	})
}

// A caller that gives up or reaches its deadline leaves no key, and no TTL lease except its own.
func TestACallerThatGivesUpLeavesNothing(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		_, err := lockBy(t.Context(), leader, 0)()
		must(t, err)
		mine := c.grant(60)
		held, before := c.keys(), c.leases()
		for name, lease := range map[string]int64{"its own TTL lease": mine, "none": 0} {
			ctx, cancel := context.WithCancel(t.Context())
			given := waits(c, lockBy(ctx, follower, lease))
			cancel()
			wantError(t, "Lock() of a caller with "+name, (<-given).err, codes.Canceled, "context canceled")
			settle() // it deletes its key, which the next call with the same TTL lease would share
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			_, err := lockBy(ctx, follower, lease)()
			cancel()
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("Lock() with %s past the deadline = %v, want DeadlineExceeded", name, err)
			}
			settle()
			if got := c.keys(); !slices.Equal(got, held) || c.leases() != before {
				t.Errorf("keys = %q over %d TTL leases after a caller with %s gave up, want %q over %d", got, c.leases(), name, held, before)
			}
		}
	})
}

// A caller may give up at any moment, also while its key is being written.
func TestACallerMayGiveUpAtAnyMoment(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		c.net.Delay(leader.Name(), follower.Name(), 5*time.Millisecond)
		_, err := lockBy(t.Context(), leader, 0)()
		must(t, err)
		held := c.keys()
		var wg sync.WaitGroup
		for range 100 {
			mine := c.grant(3600)
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(40*time.Millisecond))
				defer cancel()
				_, _ = lockBy(ctx, follower, mine)()
			})
		}
		wg.Wait()
		settle()
		if got := c.keys(); !slices.Equal(got, held) {
			t.Errorf("%d keys are left, want %q", len(got), held)
		}
	})
}

// Two calls with one TTL lease share a key. When one gives up, it deletes the key. If a third
// call puts the key again, it is behind others, and the second call must not get the lock.
func TestALockThatLostItsPlaceIsNotTaken(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		first, err := lockBy(t.Context(), leader, 0)()
		must(t, err)
		mine, other := c.grant(60), c.grant(60)
		ctx, cancel := context.WithCancel(t.Context())
		given := waits(c, lockBy(ctx, follower, mine))
		again := waits(c, lockBy(t.Context(), leader, mine))
		behind := waits(c, lockBy(t.Context(), leader, other))
		cancel()
		<-given
		settle()
		last := waits(c, lockBy(t.Context(), follower, mine))
		_, err = leader.lock.Unlock(t.Context(), &lpb.UnlockRequest{Key: first.GetKey()})
		must(t, err)
		wantError(t, "Lock() that lost its place", (<-again).err, codes.Unknown, "mutex: session is expired")
		next := <-behind
		must(t, next.err)
		_, err = leader.lock.Unlock(t.Context(), &lpb.UnlockRequest{Key: next.v.GetKey()})
		must(t, err)
		must(t, (<-last).err)
	})
}

// A lock with an expired TTL lease goes to the next caller. A caller with a TTL lease that has
// expired during its wait does not get it.
func TestLocksGoWithTheirLeases(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		m := c.members[0]
		_, err := lockBy(t.Context(), m, c.grant(20))()
		must(t, err)
		lost := waits(c, lockBy(t.Context(), m, c.grant(10)))
		began := time.Now()
		_, err = lockBy(t.Context(), m, 0)()
		must(t, err)
		if took := time.Since(began); took < 18*time.Second || took > 25*time.Second {
			t.Errorf("the lock was taken after %v, want about the TTL of 20s", took)
		}
		wantError(t, "Lock() of a lost TTL lease", (<-lost).err, codes.Unknown, "mutex: session is expired")
	})
}

// If a caller's TTL lease ends while it waits, the caller gets an error at once and not when the
// lock is free, for a lock as for an election. Callers behind it keep their place.
func TestTheEndOfATTLLeaseEndsTheWait(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		held, err := lockBy(t.Context(), leader, 0)()
		must(t, err)
		elected, err := campaignBy(t.Context(), leader, 0, "a")()
		must(t, err)
		mine := c.grant(3600)
		lock, campaign := waits(c, lockBy(t.Context(), follower, mine)), waits(c, campaignBy(t.Context(), follower, mine, "b"))
		nextLock, nextLeader := waits(c, lockBy(t.Context(), follower, 0)), waits(c, campaignBy(t.Context(), follower, 0, "c"))
		ended := time.Now()
		_, err = leader.lease.LeaseRevoke(t.Context(), &pb.LeaseRevokeRequest{ID: mine})
		must(t, err)
		wantError(t, "Lock() of a TTL lease that has ended", (<-lock).err, codes.Unknown, "mutex: session is expired")
		wantError(t, "Campaign() of a TTL lease that has ended", (<-campaign).err, codes.Unknown, "election: not leader")
		if took := time.Since(ended); took > 100*time.Millisecond {
			t.Errorf("the callers get an error %v after their TTL lease has ended, want at once", took)
		}
		_, err = leader.lock.Unlock(t.Context(), &lpb.UnlockRequest{Key: held.GetKey()})
		must(t, err)
		_, err = leader.election.Resign(t.Context(), &epb.ResignRequest{Leader: elected.GetLeader()})
		must(t, err)
		must(t, (<-nextLock).err)
		must(t, (<-nextLeader).err)
	})
}

// Invalid requests are rejected with etcd's texts and codes.
func TestLocksThatCannotBe(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		for _, lease := range []int64{-1, 77} {
			_, err := lockBy(t.Context(), c.members[0], lease)()
			wantError(t, "Lock() of an unknown TTL lease", err, codes.Unknown, "etcdserver: requested lease not found")
		}
		_, err := c.members[0].lock.Unlock(t.Context(), new(lpb.UnlockRequest))
		wantError(t, "Unlock() of no key", err, codes.Unknown, "etcdserver: key is not provided")
		_, err = c.members[0].lock.Lock(t.Context(), &lpb.LockRequest{Name: make([]byte, 1<<19)})
		wantError(t, "Lock() of a name of 512 KiB", err, codes.Unknown, "etcdserver: request is too large")
		if got := c.leases(); got != 0 {
			t.Errorf("%d TTL leases are left, want none", got)
		}
	})
}

// When a member stops, waits end and their keys are deleted before it has stopped.
func TestWaitsEndWithTheMember(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		_, err := lockBy(t.Context(), leader, 0)()
		must(t, err)
		_, err = campaignBy(t.Context(), leader, 0, "first")()
		must(t, err)
		held := c.keys()
		lock := waits(c, lockBy(t.Context(), follower, 0))
		campaign := waits(c, campaignBy(t.Context(), follower, c.grant(60), "second"))
		began := time.Now()
		follower.end()
		wantStopped := textOf(rpctypes.ErrGRPCStopped)
		wantError(t, "Lock()", (<-lock).err, codes.Unavailable, wantStopped)
		wantError(t, "Campaign()", (<-campaign).err, codes.Unavailable, wantStopped)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the waits have ended after %v, want at once", took)
		}
		if got := c.keys(); !slices.Equal(got, held) {
			t.Errorf("keys = %q, want %q", got, held)
		}
	})
}

// A partitioned member ends its waits.
func TestWaitsEndWithoutALeader(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		_, err := lockBy(t.Context(), leader, 0)()
		must(t, err)
		_, err = campaignBy(t.Context(), leader, 0, "first")()
		must(t, err)
		lock := waits(c, lockBy(t.Context(), follower, 0))
		campaign := waits(c, campaignBy(t.Context(), follower, 0, "second"))
		c.net.Isolate(follower.Name())
		began := time.Now()
		wantNoLeader := textOf(rpctypes.ErrGRPCNoLeader)
		wantError(t, "Lock()", (<-lock).err, codes.Unavailable, wantNoLeader)
		wantError(t, "Campaign()", (<-campaign).err, codes.Unavailable, wantNoLeader)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the waits have ended after %v, want 15s at most", took)
		}
	})
}

// If the partition heals soon, a failed wait has left no key.
func TestAWaitThatFailedLeavesNothing(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		_, err := lockBy(t.Context(), leader, 0)()
		must(t, err)
		_, err = campaignBy(t.Context(), leader, 0, "first")()
		must(t, err)
		held := c.keys()
		lock := waits(c, lockBy(t.Context(), follower, c.grant(3600)))
		campaign := waits(c, campaignBy(t.Context(), follower, c.grant(3600), "second"))
		c.net.Isolate(follower.Name())
		time.Sleep(6 * time.Second)
		c.net.HealAll()
		for what, err := range map[string]error{"Lock()": (<-lock).err, "Campaign()": (<-campaign).err} {
			wantError(t, what, err, codes.Unavailable, textOf(rpctypes.ErrGRPCNoLeader))
		}
		if got := c.keys(); !slices.Equal(got, held) {
			t.Errorf("keys = %q, want %q", got, held)
		}
	})
}

// Waiting calls do not keep out the request that ends their wait, and their waits have no
// timeout.
func TestWaitersDoNotKeepOutUnlock(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		m := c.members[0]
		first, err := lockBy(t.Context(), m, c.grant(3600))()
		must(t, err)
		var waiting []<-chan answer[*lpb.LockResponse]
		for range 5 {
			waiting = append(waiting, waits(c, lockBy(t.Context(), m, c.grant(3600))))
		}
		time.Sleep(30 * time.Minute)
		key := first.GetKey()
		for _, next := range waiting {
			_, err := m.lock.Unlock(t.Context(), &lpb.UnlockRequest{Key: key})
			must(t, err)
			a := <-next
			must(t, a.err)
			key = a.v.GetKey()
		}
	}, func(cfg *etcdapi.Config) { cfg.MaxInFlight = 3 })
}
