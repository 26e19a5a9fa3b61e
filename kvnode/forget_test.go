package kvnode

import (
	"testing"
	"time"

	"github.com/leaderlease/go/raftwal"
	"github.com/leaderlease/go/raftwal/fs"
)

// A change of membership that was acknowledged is not forgotten: whoever is left
// elects a leader, with nobody that the change has made needless. The log's newest
// commit index is put off, and nothing is written meanwhile that it could go along
// with.
func TestAnAcknowledgedChangeSurvivesACrash(t *testing.T) {
	var d disks
	crashes := map[string]func(*cluster, ...*Node){"kill": (*cluster).crash, "power cut": (*cluster).cutPower}
	for name, crash := range crashes {
		for wait, pause := range map[string]time.Duration{"at once": 0, "after 6 s": 6 * time.Second} {
			t.Run(name+" "+wait, func(t *testing.T) {
				inCluster(t, 2, d.use, func(t *testing.T, c *cluster) {
					leader := c.leader()
					time.Sleep(time.Second)
					other := c.followers(leader)[0]
					if err := leader.RemoveMember(t.Context(), other.ID()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(pause)
					crash(c, leader)
					c.gone(other)
					c.start(leader.Name())
					c.put(c.leader(), "k", "v")
				})
			})
		}
	}
}

// gone ends a member that never comes back.
func (c *cluster) gone(n *Node) {
	n.life.Fail(ErrRemoved)
	wantEnd(c.t, n)
	delete(c.nodes, n.Name())
}

// Of four members one is away and one is removed: the two that are left are a
// majority of three, and not of four.
func TestARemovalWithOneMemberAwaySurvivesAPowerCut(t *testing.T) {
	var d disks
	for wait, pause := range map[string]time.Duration{"at once": 0, "after 6 s": 6 * time.Second} {
		t.Run(wait, func(t *testing.T) {
			inCluster(t, 4, d.use, func(t *testing.T, c *cluster) {
				leader := c.leader()
				c.raised(leader) // all have registered
				others := c.followers(leader)
				c.cutPower(others[0])
				if err := leader.RemoveMember(t.Context(), others[1].ID()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(pause)
				c.cutPower(leader, others[2])
				c.gone(others[1])
				c.start(leader.Name())
				c.start(others[2].Name())
				c.put(c.leader(), "k", "v")
			})
		})
	}
}

// One of two voters and the promoted learner are a majority of three. Whichever
// member the client has asked, it has the answer of one that is left.
func TestAPromotionSurvivesAPowerCut(t *testing.T) {
	var d disks
	inCluster(t, 2, d.use, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		m, err := leader.AddMember(t.Context(), peerURLs("m3"), true)
		if err != nil {
			t.Fatal(err)
		}
		third := c.join("m3")
		c.applied(third, leader)
		time.Sleep(time.Second)
		other := c.followers(leader)[0]
		if err := leader.PromoteMember(t.Context(), m.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		c.cutPower(leader, other, third)
		c.start(leader.Name())
		c.start("m3")
		c.put(c.leader(), "k", "v")
	})
}

// The update with the commit index waits behind others, while the change is applied
// and acknowledged already: what was handed to the appender is not on the disk.
func TestAnAcknowledgedChangeWaitsForNoAppender(t *testing.T) {
	var d disks
	inCluster(t, 2, d.use, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		other := c.followers(leader)[0]
		c.net.Delay(leader.Name(), other.Name(), 50*time.Millisecond)
		removed := make(chan error, 1)
		go func() { removed <- leader.RemoveMember(t.Context(), other.ID()) }()
		time.Sleep(20 * time.Millisecond) // it is in the leader's log, and not yet in the other's
		err := leader.loop.writer.appender.Append(raftwal.Update{}, func(error) { <-leader.life.Stopping() })
		if err != nil {
			t.Fatal(err)
		}
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
		c.cutPower(leader)
		c.gone(other)
		c.start(leader.Name())
		c.put(c.leader(), "k", "v")
	})
}

// Who answers knows the change, and so does who is left: the member that is removed
// applies its removal first, since the other's disk is slow.
func TestWhoIsLeftKnowsOfARemoval(t *testing.T) {
	var d disks
	inCluster(t, 2, d.use, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		other := c.followers(leader)[0]
		c.net.Delay(leader.Name(), other.Name(), 50*time.Millisecond)
		removed := make(chan error, 1)
		go func() { removed <- other.RemoveMember(t.Context(), other.ID()) }()
		time.Sleep(120 * time.Millisecond) // it is in both logs, and the leader does not know
		err := leader.loop.writer.appender.Append(raftwal.Update{}, func(error) { time.Sleep(200 * time.Millisecond) })
		if err != nil {
			t.Fatal(err)
		}
		d.of(leader).SetHook(func(op fs.Op) *fs.Fault {
			if op.Kind == fs.OpSync {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		})
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
		c.cutPower(leader)
		c.gone(other)
		c.start(leader.Name())
		c.put(c.leader(), "k", "v")
	})
}

// What it costs is a sync for each change and one for the entry behind it, and none
// for anything else.
func TestOnlyChangesOfMembershipSyncMore(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		time.Sleep(time.Second)
		syncs := func(f func()) uint64 {
			before := n.wal.Stats().Syncs
			f()
			return n.wal.Stats().Syncs - before
		}
		for range 10 {
			if got := syncs(func() { c.put(n, "k", "v") }); got != 1 {
				t.Errorf("a put costs %d syncs, want 1", got)
			}
		}
		change := func() {
			if _, err := n.AddMember(t.Context(), peerURLs("m2"), true); err != nil {
				t.Fatal(err)
			}
		}
		if got := syncs(change); got != 3 {
			t.Errorf("a change of membership costs %d syncs, want 3", got)
		}
	})
}

// A disk that is full just when a change is committed holds the answer up, and what
// counts by the change, until there is room.
func TestAChangeWaitsForRoom(t *testing.T) {
	var d disks
	inCluster(t, 2, d.use, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		other := c.followers(leader)[0]
		c.net.Delay(leader.Name(), other.Name(), 50*time.Millisecond)
		removed := make(chan error, 1)
		go func() { removed <- leader.RemoveMember(t.Context(), other.ID()) }()
		time.Sleep(20 * time.Millisecond) // it is in the leader's log, and not yet in the other's
		d.fill(leader)
		time.Sleep(2 * time.Second)
		select {
		case err := <-removed:
			t.Fatalf("RemoveMember() = %v while the commit index is not on disk, want it to wait", err)
		default:
		}
		if s := leader.Status(); !s.DiskFull {
			t.Error("DiskFull is false, want true")
		}
		d.free(leader)
		if err := <-removed; err != nil {
			t.Errorf("RemoveMember() = %v once there is room, want nil", err)
		}
		c.gone(other)
		c.cutPower(leader)
		c.start(leader.Name())
		c.put(c.leader(), "k", "v")
	})
}
