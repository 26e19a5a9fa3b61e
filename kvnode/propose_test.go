package kvnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

const (
	littleRoom = 1 << 20
	// large is the size of a value of which only one fits into a message to raft.
	large = 130 << 10
)

// little limits the uncommitted bytes of raft to littleRoom.
func little(d *disks) func(*Config) {
	return func(c *Config) { d.use(c); c.maxUncommitted = littleRoom }
}

// putLarge starts count puts of large values, and returns a function that waits for them.
func (c *cluster) putLarge(n *Node, count int) (wait func()) {
	value := strings.Repeat("x", large)
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			if err := put(c.t.Context(), n, fmt.Sprint(n.Name(), i), value); err != nil {
				c.t.Errorf("large put %d of %d through %s: %v", i, count, n.Name(), err)
			}
		})
	}
	return all.Wait
}

// withoutQuorum runs f while the given members, the leader among them, are cut off from the others, so that
// nothing is committed. f must take less than an election timeout.
func (c *cluster) withoutQuorum(some []*Node, f func()) {
	c.t.Helper()
	for _, n := range some {
		for _, other := range c.nodes {
			if !slices.Contains(some, other) {
				c.net.Cut(n.Name(), other.Name())
			}
		}
	}
	f()
	c.net.HealAll()
}

// A follower forwards more than raft takes uncommitted. The leader keeps the rest, as it does for its own
// clients.
func TestForwardedProposalsAreKept(t *testing.T) {
	var d disks
	inCluster(t, 4, little(&d), func(t *testing.T, c *cluster) {
		leader := c.leader()
		follower := c.followers(leader)[0]
		c.put(follower, "first", "v")
		var wait func()
		c.withoutQuorum([]*Node{leader, follower}, func() {
			wait = c.putLarge(follower, 24)
			synctest.Wait()
		})
		begun := time.Now()
		wait()
		if took := time.Since(begun); took >= leader.cfg.TickInterval {
			t.Errorf("24 large writes took %v once there was a quorum, want less than a tick", took)
		}
	})
}

// A leader holds no more proposals of a follower than its quota. The rest waits at the follower, and is
// proposed to the next leader.
func TestFollowerQuota(t *testing.T) {
	var d disks
	short := func(c *Config) { little(&d)(c); c.RequestTimeout = 700 * time.Millisecond }
	inCluster(t, 4, short, func(t *testing.T, c *cluster) {
		leader := c.leader()
		follower := c.followers(leader)[0]
		c.put(follower, "first", "v")
		value := strings.Repeat("x", large)
		c.withoutQuorum([]*Node{leader, follower}, func() {
			var all sync.WaitGroup
			for range 24 {
				all.Go(func() { _ = put(t.Context(), follower, "k", value) })
			}
			synctest.Wait()
			if got, most := leader.queued(), littleRoom/large; got < most/2 || got > most {
				t.Errorf("the leader holds %d large messages of the follower, want about %d, and no more", got, most)
			}
			all.Wait()
			for leader.Leader() == leader.ID() {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(10 * time.Millisecond)
			if got := leader.queued(); got != 0 {
				t.Errorf("the former leader holds %d messages of a follower, want none", got)
			}
		})
		c.leader()
		for _, n := range c.nodes {
			c.put(n, n.Name(), "v")
		}
	})
}

// fillUncommitted puts values that leave less of raft's uncommitted bytes than a configuration change needs.
func (c *cluster) fillUncommitted(leader *Node) (wait func()) {
	value := func(size int) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: make([]byte, size)}}
	}
	room, count := littleRoom-32, 7
	var all sync.WaitGroup
	for i := range count {
		size := room / (count - i)
		data, err := (&store.Command{ID: leader.proposals.NextID(), Request: value(size)}).Encode()
		if err != nil {
			c.t.Fatal(err)
		}
		r := value(2*size - len(data))
		room -= size
		all.Go(func() {
			if _, err := leader.Propose(c.t.Context(), r); err != nil {
				c.t.Errorf("put %d of %d: %v", i, count, err)
			}
		})
	}
	return all.Wait
}

// Raft takes a configuration change that it has dropped for a pending one, and then replaces the same
// change by an empty entry. So a change of the leader or a follower is not offered before raft takes it.
func TestChangeAfterUncommittedProposals(t *testing.T) {
	for _, through := range []string{"leader", "follower"} {
		t.Run(through, func(t *testing.T) {
			var d disks
			inCluster(t, 4, little(&d), func(t *testing.T, c *cluster) {
				leader := c.leader()
				c.raised(leader)
				follower := c.followers(leader)[0]
				asked := map[string]*Node{"leader": leader, "follower": follower}[through]
				var wait func()
				var change sync.WaitGroup
				c.withoutQuorum([]*Node{leader, follower}, func() {
					wait = c.fillUncommitted(leader)
					synctest.Wait()
					change.Go(func() {
						if err := asked.UpdateMember(t.Context(), follower.ID(), []string{"http://elsewhere.example:2380"}); err != nil {
							t.Errorf("UpdateMember() through the %s with too much uncommitted = %v, want nil", through, err)
						}
					})
					synctest.Wait()
				})
				wait()
				change.Wait()
			})
		})
	}
}

// A follower without a connection to the leader keeps its proposals, whether it still knows the leader or not.
func TestFollowerKeepsProposals(t *testing.T) {
	for _, away := range []time.Duration{70 * time.Millisecond, 700 * time.Millisecond} {
		keepsWhatItCannotSend(t, away)
	}
}

func keepsWhatItCannotSend(t *testing.T, away time.Duration) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		follower := c.followers(leader)[0]
		c.put(follower, "first", "v")
		c.net.Cut(follower.Name(), leader.Name())
		c.net.Reset(follower.Name(), leader.Name())
		time.Sleep(10 * time.Millisecond)
		begun, done := time.Now(), make(chan error, 1)
		go func() { done <- put(t.Context(), follower, "k", "v") }()
		time.Sleep(away)
		if forgotten := follower.Leader() == 0; forgotten != (away > shortPromise) {
			t.Errorf("after %v its leader is forgotten: %v", away, forgotten)
		}
		c.net.HealAll()
		if err := <-done; err != nil {
			t.Errorf("put through a follower that was cut off for %v = %v after %v", away, err, time.Since(begun))
		}
	})
}

// A follower does not notice that its leader was deposed and leads again in a later term. It does not wait
// for proposals that it handed to the leader of the former term.
func TestSameLeaderInALaterTerm(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		follower, other := c.followers(leader)[0], c.followers(leader)[1]
		c.put(follower, "first", "v")
		time.Sleep(time.Second)
		c.isolate(follower)
		begun, done := time.Now(), make(chan error, 1)
		go func() { done <- put(t.Context(), follower, "k", "v") }()
		revoked := make(chan error, 1)
		go func() {
			_, err := follower.Propose(t.Context(), &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 1}})
			revoked <- err
		}()
		synctest.Wait()
		if err := leader.MoveLeader(t.Context(), other.ID()); err != nil {
			t.Fatal(err)
		}
		if err := other.MoveLeader(t.Context(), leader.ID()); err != nil {
			t.Fatal(err)
		}
		if follower.Leader() != leader.ID() {
			t.Fatal("the follower has noticed the change of the leader")
		}
		changed := follower.LeaderChanged()
		for _, n := range []*Node{leader, other} {
			c.net.Reset(n.Name(), follower.Name())
		}
		c.net.Heal(leader.Name(), follower.Name())
		if err := <-done; err != nil || time.Since(begun) > 2*time.Second {
			t.Errorf("put that a connection lost, while the leader leads again = %v after %v, want nil within 2s", err, time.Since(begun))
		}
		c.once(follower)
		// It must not have a required term, so its result is unknown.
		if err := <-revoked; !errors.Is(err, ErrLeaderChanged) || time.Since(begun) > 2*time.Second {
			t.Errorf("a revocation that a connection lost = %v after %v, want ErrLeaderChanged within 2s", err, time.Since(begun))
		}
		synctest.Wait()
		select {
		case <-changed:
		default:
			t.Error("LeaderChanged() is open, want it closed after a term")
		}
	})
}

// delay delays each message between members by d.
func (c *cluster) delay(d time.Duration) {
	for a := range c.nodes {
		for b := range c.nodes {
			if a < b {
				c.net.Delay(a, b, d)
			}
		}
	}
}

// putApart starts puts, one after the other, and returns a function that waits for them.
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

// Writes that arrive during a round trip form the next batch: here one write, and then all others.
func TestWritesShareARoundTrip(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "first", "v")
		time.Sleep(time.Second) // all members know its commit index
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

// A member whose leader reaches it before it has a stream for proposals loses its first registration. It
// tries again before the request timeout.
func TestLostRegistration(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		n := c.followers(leader)[0]
		<-n.Published()
		c.stop(n.Name())
		cfg := c.cfgs[n.Name()]
		cfg.ClientURLs = []string{"http://moved:2379"}
		dial, begun := cfg.Dial, time.Now()
		var mu sync.Mutex
		dialled := make(map[string]bool)
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			mu.Lock()
			second := dialled[addr]
			dialled[addr] = true
			mu.Unlock()
			if second && time.Since(begun) < 500*time.Millisecond {
				return nil, errors.New("not yet")
			}
			return dial(ctx, addr)
		}
		c.cfgs[n.Name()] = cfg
		<-c.start(n.Name()).Published()
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("Published() after %v, want about two tries of an election timeout each", took)
		}
	})
}
