package kvnode

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// In these tests a put takes effect once although its leader is replaced, whatever becomes of its first
// attempt.

// settled returns a leader and two followers that know the commit index.
func (c *cluster) settled() (leader, follower, other *Node) {
	c.t.Helper()
	leader = c.leader()
	follower, other = c.followers(leader)[0], c.followers(leader)[1]
	c.put(follower, "first", "v")
	time.Sleep(time.Second)
	return leader, follower, other
}

// later starts a put of k through n, and returns a channel with its outcome.
func (c *cluster) later(n *Node) <-chan error {
	done := make(chan error, 1)
	go func() { done <- put(c.t.Context(), n, "k", "v") }()
	return done
}

// once fails the test unless k was put exactly once.
func (c *cluster) once(n *Node) {
	c.t.Helper()
	if _, err := n.Read(c.t.Context(), ReadIndex); err != nil {
		c.t.Fatal(err)
	}
	if kv, _ := n.Store().Get([]byte("k")); kv.GetVersion() != 1 {
		c.t.Errorf("k was put %d times, want once", kv.GetVersion())
	}
}

// doneOnce waits for a put of k through n, and checks how many of its attempts were void.
func (c *cluster) doneOnce(n *Node, done <-chan error, void uint64) {
	c.t.Helper()
	if err := <-done; err != nil {
		c.t.Errorf("a put while the leader is replaced = %v, want nil", err)
	}
	time.Sleep(time.Second) // messages under way arrive
	c.once(n)
	if got := n.Status().Counts.VoidedProposals; got != void {
		c.t.Errorf("%d attempts were void, want %d", got, void)
	}
}

// A leader that transfers leadership takes no proposals, and drops forwarded ones afterwards.
func TestPutDuringATransfer(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader, follower, other := c.settled()
		c.net.Delay(leader.Name(), other.Name(), 20*time.Millisecond)
		leader.transfers.askToLead(other.ID())
		synctest.Wait()
		done := c.later(follower)
		synctest.Wait()
		if waits := leader.queued(); waits != 1 {
			t.Fatalf("%d proposals of the follower wait at the leader, want one", waits)
		}
		c.doneOnce(follower, done, 1)
		if now := follower.Leader(); now != other.ID() {
			t.Errorf("%x leads, want %x", now, other.ID())
		}
	})
}

// The put arrives when the former leader follows the next one, and is passed on. The next leader's log has
// it in another term than it requires.
func TestAPutThatIsPassedOnToTheNextLeader(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader, follower, other := c.settled()
		last := c.lastIndex(other)
		c.net.Delay(leader.Name(), follower.Name(), 30*time.Millisecond)
		leader.transfers.askToLead(other.ID())
		c.doneOnce(follower, c.later(follower), 1)
		if entries := c.lastIndex(other) - last; entries != 3 {
			t.Errorf("the next leader's log has %d entries more, want 3: its first, the put that was passed on, and the put", entries)
		}
	})
}

// Both followers have the put in their logs, and do not know that it is committed, when one of them
// replaces the leader. The next leader commits it.
func TestPutCommittedByTheNextLeader(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		followers := c.followers(leader)
		done := c.untold(leader, func() error { return put(t.Context(), followers[0], "k", "v") }, followers...)
		c.doneOnce(followers[0], done, 0)
	})
}

// Only the leader has the put in its log, and is replaced. When it returns its entry is overwritten.
func TestPutThatOnlyTheFormerLeaderHas(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader, follower, other := c.settled()
		last := c.lastIndex(leader)
		c.net.Cut(leader.Name(), other.Name())
		c.net.CutOneWay(leader.Name(), follower.Name())
		done := c.later(follower)
		synctest.Wait()
		if c.lastIndex(leader) != last+1 || c.lastIndex(follower) != last {
			t.Fatal("the put is not in the leader's log, or is in a follower's, too")
		}
		c.doneOnce(follower, done, 1)
		c.net.HealAll()
		time.Sleep(3 * time.Second)
		c.once(leader)
	})
}

// The leader commits the put, and the follower gets a snapshot instead of the entry. It cannot find the put
// in there.
func TestPutThatASnapshotMayContain(t *testing.T) {
	few := func(cfg *Config) { cfg.CatchUpEntries, cfg.RequestTimeout = 1, time.Minute }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		leader, follower, other := c.settled()
		c.net.Cut(follower.Name(), other.Name())
		c.net.CutOneWay(leader.Name(), follower.Name())
		done := c.later(follower)
		synctest.Wait()
		c.net.Cut(follower.Name(), leader.Name())
		time.Sleep(100 * time.Millisecond)
		if err := leader.MoveLeader(t.Context(), other.ID()); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			c.put(other, fmt.Sprint(i), "v")
		}
		checkpointed(t, other)
		checkpointed(t, leader)
		for _, n := range []*Node{leader, other} {
			c.net.Reset(n.Name(), follower.Name()) // messages under way are lost
		}
		c.net.HealAll()
		if err := <-done; !errors.Is(err, ErrLeaderChanged) {
			t.Errorf("a put that a snapshot may contain = %v, want ErrLeaderChanged", err)
		}
		time.Sleep(time.Second)
		c.once(follower)
	})
}

// A leader with a full disk transfers leadership. It applies no entry of the next leader, so it cannot
// learn the outcome.
func TestPutAtALeaderWithAFullDisk(t *testing.T) {
	var d disks
	inCluster(t, 3, d.use, func(t *testing.T, c *cluster) {
		leader, _, _ := c.settled()
		d.fill(leader)
		done, changed := c.later(leader), leader.LeaderChanged()
		<-changed
		synctest.Wait()
		select {
		case err := <-done:
			if !errors.Is(err, ErrLeaderChanged) {
				t.Errorf("a put at a leader with a full disk = %v, want ErrLeaderChanged", err)
			}
		default:
			t.Errorf("a put at a leader with a full disk waits for an entry that does not come; afterwards it is %v", <-done)
		}
	})
}

// A leader's proposal for its own term fails when that ends. It is not proposed in another term, where it
// would have no effect.
func TestFencedProposalEndsWithItsTerm(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader, follower, other := c.settled()
		last := c.lastIndex(other)
		c.net.CutOneWay(leader.Name(), follower.Name())
		c.net.CutOneWay(leader.Name(), other.Name())
		done := make(chan error, 1)
		go func() {
			r := &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: []byte("v")}}
			res, err := leader.ProposeFenced(t.Context(), leader.Term(), r)
			done <- errors.Join(err, res.Err)
		}()
		synctest.Wait()
		c.leader(leader)
		c.net.HealAll()
		if err := <-done; !errors.Is(err, ErrLeaderChanged) {
			t.Errorf("a fenced proposal of a leader that is replaced = %v, want ErrLeaderChanged", err)
		}
		time.Sleep(3 * time.Second)
		if got := leader.Status().Counts.VoidedProposals; got != 0 {
			t.Errorf("%d attempts were void, want none: there is one attempt", got)
		}
		if entries := c.lastIndex(other) - last; entries != 1 {
			t.Errorf("the next leader's log has %d entries more, want its first alone", entries)
		}
	})
}
