package kvnode

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

// The members that remain when a leader is removed elect another one, whichever messages are lost and members
// crash. A member that was removed and has stopped never comes back here:
// its directory may be gone.

// untold has leader do something, and cuts its lines to those in others once they
// have written it, before they can hear that it is committed. It returns what op
// returns.
func (c *cluster) untold(leader *Node, op func() error, others ...*Node) <-chan error {
	c.t.Helper()
	time.Sleep(time.Second)
	const delay = 50 * time.Millisecond
	before := c.lastIndex(leader)
	for _, n := range others {
		c.net.Delay(leader.Name(), n.Name(), delay)
	}
	time.Sleep(100 * time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- op() }()
	for _, n := range others {
		for c.lastIndex(n) == before {
			time.Sleep(delay / 50)
		}
		c.net.CutOneWay(leader.Name(), n.Name())
	}
	return done
}

func (c *cluster) lastIndex(n *Node) uint64 {
	c.t.Helper()
	last, err := n.wal.LastIndex()
	if err != nil {
		c.t.Fatal(err)
	}
	return last
}

// heal ends what untold did.
func (c *cluster) heal(leader *Node, others ...*Node) {
	for _, n := range others {
		c.net.Reset(leader.Name(), n.Name())
		c.net.Heal(leader.Name(), n.Name())
		c.net.Delay(leader.Name(), n.Name(), 0)
	}
}

func lax(cfg *Config) {
	cfg.LaxReconfig = true
	disks{}.use(cfg)
}

// removes returns what has at remove n.
func removes(t *testing.T, at, n *Node) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return at.RemoveMember(ctx, n.ID())
	}
}

// removesAndWrites is removes by the leader itself, and a write comes behind the change
// before that is committed. So the leader's log is longer, and it refuses its vote.
func removesAndWrites(t *testing.T, leader *Node) func() error {
	return func() error {
		go func() {
			time.Sleep(20 * time.Millisecond)
			_ = put(t.Context(), leader, "k", "v") // it is not committed
		}()
		return removes(t, leader, leader)()
	}
}

// pending fails the test if a removal is answered although the other members may
// need this one.
func pending(t *testing.T, removed <-chan error, n *Node) {
	t.Helper()
	select {
	case err := <-removed:
		t.Fatalf("RemoveMember() = %v while those who are left need the member, want it to wait", err)
	case <-n.Done():
		t.Fatal("the removed member has stopped while those who are left need it")
	default:
	}
}

// succeeded waits until the removed leader has stopped itself and another leads.
func (c *cluster) succeeded(leader *Node) {
	c.t.Helper()
	select {
	case <-leader.Done():
	case <-time.After(time.Minute):
		c.t.Fatal("the removed member still runs after a minute")
	}
	if err := leader.Err(); !errors.Is(err, ErrRemoved) {
		c.t.Errorf("Err() = %v, want ErrRemoved", err)
	}
	delete(c.nodes, leader.Name())
	c.put(c.leader(), "k", "v")
}

// The leader of two removes itself, and the other does not hear that this is
// committed. Without a leader it asks for the vote of the removed member.
func TestALeaderOfTwoThatRemovesItselfIsSucceeded(t *testing.T) {
	inCluster(t, 2, lax, func(t *testing.T, c *cluster) {
		leader := c.leader()
		other := c.followers(leader)[0]
		removed := c.untold(leader, removesAndWrites(t, leader), other)
		time.Sleep(10 * time.Second)
		pending(t, removed, leader)
		c.heal(leader, other)
		if err := <-removed; err != nil {
			t.Errorf("RemoveMember() of itself = %v, want nil", err)
		}
		c.succeeded(leader)
	})
}

// As soon as the removal is answered, the removed member is gone for good, and the
// other one's process ends.
func TestTheRestOfTwoElectsItself(t *testing.T) {
	inCluster(t, 2, lax, func(t *testing.T, c *cluster) {
		leader := c.leader()
		other := c.followers(leader)[0]
		removed := c.untold(leader, removesAndWrites(t, leader), other)
		time.Sleep(3 * time.Second)
		c.heal(leader, other)
		if err := <-removed; err != nil {
			t.Fatalf("RemoveMember() of itself = %v, want nil", err)
		}
		c.cutPower(leader, other)
		c.start(other.Name())
		c.put(c.leader(), "k", "v")
	})
}

// The removed leader is killed before any member learns of the removal. Its client has no answer, so it is
// started again and completes the removal.
func TestARemovedLeaderThatIsKilledComesBackToSaySo(t *testing.T) {
	inCluster(t, 2, lax, func(t *testing.T, c *cluster) {
		leader := c.leader()
		other := c.followers(leader)[0]
		removed := c.untold(leader, removesAndWrites(t, leader), other)
		time.Sleep(time.Second)
		if !leader.Store().Members().Removed[leader.ID()] {
			t.Fatal("the leader has not applied its removal after a second")
		}
		c.cutPower(leader, other)
		if err := <-removed; err == nil {
			t.Error("RemoveMember() = nil of a leader that was killed before the other knew")
		}
		c.heal(leader, other)
		c.start(other.Name())
		time.Sleep(5 * time.Second)
		if got := other.Leader(); got == other.ID() {
			t.Error("the other leads, although it cannot know of the removal")
		}
		c.succeeded(c.start(leader.Name()))
	})
}

// Of four members the leader removes itself. One that hears it is not enough: that
// one may be lost, and the two that remain are a majority of three.
func TestOneOfThreeThatKnowsIsNotEnough(t *testing.T) {
	inCluster(t, 4, lax, func(t *testing.T, c *cluster) {
		leader := c.leader()
		others := c.followers(leader)
		knows, left := others[0], others[1:]
		removed := c.untold(leader, removesAndWrites(t, leader), left...)
		for _, n := range left {
			c.net.Cut(knows.Name(), n.Name())
		}
		time.Sleep(5 * time.Second)
		if !knows.Store().Members().Removed[leader.ID()] {
			t.Fatalf("%s does not know of the removal", knows.Name())
		}
		pending(t, removed, leader)
		c.gone(knows)
		c.heal(leader, left...)
		if err := <-removed; err != nil {
			t.Errorf("RemoveMember() of itself = %v, want nil", err)
		}
		c.succeeded(leader)
	})
}

// A follower is asked to remove the leader, and is the only one to hear that this is
// committed.
func TestRemovalOfTheLeaderWaits(t *testing.T) {
	inCluster(t, 4, lax, func(t *testing.T, c *cluster) {
		leader := c.leader()
		others := c.followers(leader)
		asked, left := others[0], others[1:]
		removed := c.untold(leader, removes(t, asked, leader), left...)
		for _, n := range left {
			c.net.Cut(asked.Name(), n.Name())
		}
		time.Sleep(5 * time.Second)
		if !asked.Store().Members().Removed[leader.ID()] {
			t.Fatalf("%s does not know of the removal", asked.Name())
		}
		pending(t, removed, leader)
		for _, n := range left {
			c.net.Reset(asked.Name(), n.Name())
			c.net.Heal(asked.Name(), n.Name())
		}
		if err := <-removed; err != nil {
			t.Fatalf("RemoveMember() of the leader = %v, want nil", err)
		}
		c.cutPower(append(left, leader, asked)...)
		for _, n := range left {
			c.start(n.Name())
		}
		c.put(c.leader(), "k", "v")
	})
}

// What a member says is committed counts only where the log has the same entry, and
// only if it tells of a change of membership.
func TestCommitOfAnotherEntryIsNotTaken(t *testing.T) {
	write := func(t *testing.T, leader *Node) func() error {
		return func() error { return put(t.Context(), leader, "k", "v") }
	}
	for _, tc := range []struct {
		name        string
		op          func(*testing.T, *Node) func() error
		index, term uint64 // beyond those of the entry
		want        bool
	}{
		{"the change", removesAndWrites, 0, 0, true},
		{"another entry at its index", removesAndWrites, 0, 1, false},
		{"an entry that is not there", removesAndWrites, 1, 0, false},
		{"a write", write, 0, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, 2, lax, func(t *testing.T, c *cluster) {
				leader := c.leader()
				other := c.followers(leader)[0]
				done := c.untold(leader, tc.op(t, leader), other)
				time.Sleep(3 * time.Second) // nobody leads
				index, term := c.lastIndex(other), other.Term()
				entry, err := other.wal.Term(index)
				if err != nil || other.Leader() != 0 || other.Store().Applied() >= index {
					t.Fatalf("the other has entry %d of term %d, %v, leader %x, applied %d", index, entry, err, other.Leader(), other.Store().Applied())
				}
				peers{other}.Receive(&raftpb.Message{
					Type: raftpb.MsgPreVoteResp.Enum(), From: new(leader.ID()), To: new(other.ID()), Term: new(term), Reject: new(true),
					Commit: new(index + tc.index), RejectHint: new(entry + tc.term),
				}, transport.ProcessID{})
				time.Sleep(time.Millisecond)
				if got := other.Store().Applied() >= index; got != tc.want {
					t.Errorf("applied %d of %d after the word, want it taken: %v", other.Store().Applied(), index, tc.want)
				}
				if other.Leader() == leader.ID() {
					t.Error("who told is taken for the leader")
				}
				c.net.HealAll()
				c.crash(leader)
				t.Log(<-done)
			})
		})
	}
}

// Of four, the leader removes a follower. All have written that; only the leader
// hears that it is committed, refuses the follower, and is lost. The two others are a
// majority of the three that are left, but count by four: they need the vote of the
// one that was removed, which has not applied that.
func TestARemovedFollowerStaysWhileItsVoteIsNeeded(t *testing.T) {
	inCluster(t, 4, lax, func(t *testing.T, c *cluster) {
		leader := c.leader()
		others := c.followers(leader)
		removed, left := others[0], others[1:]
		c.untold(leader, removes(t, leader, removed), others...)
		for _, n := range left {
			c.net.Cut(removed.Name(), n.Name())
		}
		c.net.Reset(leader.Name(), removed.Name())
		c.net.Heal(leader.Name(), removed.Name())
		time.Sleep(5 * time.Second)
		c.gone(leader)
		for _, n := range left {
			c.net.Reset(removed.Name(), n.Name())
			c.net.Heal(removed.Name(), n.Name())
		}
		time.Sleep(time.Minute)
		if left[0].Leader() == 0 {
			t.Error("no member leads a minute later")
		}
		wantEnd(t, removed)
		delete(c.nodes, removed.Name())
	})
}
