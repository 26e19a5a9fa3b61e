package kvnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/raftwal"
	"github.com/leaderlease/go/raftwal/fs"
)

// join starts a member that was added.
func (c *cluster) join(name string) *Node {
	c.t.Helper()
	c.cfgs[name] = c.joining(name)
	return c.start(name)
}

// joining returns the configuration of a member that was added.
func (c *cluster) joining(name string) Config {
	var cfg Config
	for _, other := range c.cfgs {
		cfg = other // any other member's
	}
	cfg.Cluster = slices.DeleteFunc(slices.Clone(cfg.Cluster), func(m Member) bool { return m.Name == name })
	cfg.Cluster = append(cfg.Cluster, Member{Name: name, PeerURLs: peerURLs(name)})
	cfg.Name, cfg.DataDir, cfg.Existing = name, filepath.Join(filepath.Dir(cfg.DataDir), name), true
	cfg.ClientURLs, cfg.Dial = []string{"http://" + name + ":2379"}, c.net.Dialer(name)
	if cfg.walFS != nil {
		cfg.walFS = fs.NewMemory()
	}
	return cfg
}

func peerURLs(name string) []string { return []string{"http://" + name + ":2380"} }

// applied waits until n has applied what leader has.
func (c *cluster) applied(n, leader *Node) {
	c.t.Helper()
	c.appliedWithin(10*time.Second, n, leader)
}

func (c *cluster) appliedWithin(d time.Duration, n, leader *Node) {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < d; time.Sleep(10 * time.Millisecond) {
		if n.Store().Applied() >= leader.Store().Applied() {
			return
		}
	}
	c.t.Fatalf("%s has applied %d after %v, the leader %d", n.Name(), n.Store().Applied(), d, leader.Store().Applied())
}

func TestALearnerJoinsAndIsPromoted(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		m, err := leader.AddMember(t.Context(), peerURLs("m4"), true)
		if err != nil {
			t.Fatal(err)
		}
		if err := leader.PromoteMember(t.Context(), m.ID); !errors.Is(err, ErrLearnerNotReady) {
			t.Errorf("PromoteMember() before it runs = %v, want ErrLearnerNotReady", err)
		}
		if _, err := leader.AddMember(t.Context(), peerURLs("m5"), true); !errors.Is(err, ErrTooManyLearners) {
			t.Errorf("AddMember() of a second learner = %v, want ErrTooManyLearners", err)
		}
		fourth := c.join("m4")
		if fourth.ID() != m.ID {
			t.Fatalf("the member is %x, want %x", fourth.ID(), m.ID)
		}
		c.applied(fourth, leader)
		if value, path := c.get(fourth, ReadLease, "k"); value != "v" || path != "forwarded" {
			t.Errorf("a learner reads %q by %s, want v by forwarded", value, path)
		}
		if err := c.followers(leader)[0].PromoteMember(t.Context(), m.ID); !errors.Is(err, ErrNotLeader) {
			t.Errorf("PromoteMember() on a follower = %v, want ErrNotLeader", err)
		}
		if err := leader.PromoteMember(t.Context(), m.ID); err != nil {
			t.Fatalf("PromoteMember() = %v, want nil", err)
		}
		if err := leader.PromoteMember(t.Context(), m.ID); !errors.Is(err, ErrNotLearner) {
			t.Errorf("PromoteMember() of a voter = %v, want ErrNotLearner", err)
		}
		if n := len(leader.store.Members().Voters()); n != 4 {
			t.Errorf("%d voters, want 4", n)
		}
		time.Sleep(time.Second)
		if _, path := c.get(leader, ReadLease, "k"); path != "lease" {
			t.Errorf("the leader of four reads by %s, want lease", path)
		}
		// It can lead, too, and is known after a restart.
		if err := leader.MoveLeader(t.Context(), m.ID); err != nil {
			t.Errorf("MoveLeader() to the new voter = %v, want nil", err)
		}
		c.leader()
		c.stop("m4")
		c.start("m4")
		c.leader()
	})
}

func TestARemovedLeaderStopsItself(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		if err := leader.RemoveMember(t.Context(), leader.ID()); err != nil {
			t.Fatalf("RemoveMember() of itself = %v, want nil", err)
		}
		select {
		case <-leader.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the removed member still runs after 10s")
		}
		if err := leader.Err(); !errors.Is(err, ErrRemoved) {
			t.Errorf("Err() = %v, want ErrRemoved", err)
		}
		for _, advice := range []string{"remove " + leader.cfg.DataDir, "member add " + leader.Name()} {
			if !strings.Contains(leader.Err().Error(), advice) {
				t.Errorf("Err() = %v, want it to say %q", leader.Err(), advice)
			}
		}
		delete(c.nodes, leader.Name())
		next := c.leader()
		c.put(next, "k", "v")
		if _, err := c.tryStart(leader.Name()); err == nil {
			// It starts, since its own log does not have the removal, and the others refuse it as removed.
			<-c.nodes[leader.Name()].Done()
			delete(c.nodes, leader.Name())
		}
	})
}

// The way to replace a member that has lost its directory.
func TestAWipedMemberIsReplaced(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		victim := c.followers(leader)[0]
		c.put(leader, "k", "v")
		time.Sleep(time.Second)
		c.stop(victim.Name())
		if err := os.RemoveAll(victim.cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		if err := leader.RemoveMember(t.Context(), victim.ID()); err != nil {
			t.Fatalf("RemoveMember() of a member that is down = %v, want nil", err)
		}
		m, err := leader.AddMember(t.Context(), peerURLs(victim.Name()), false)
		if err != nil {
			t.Fatalf("AddMember() = %v, want nil", err)
		}
		if m.ID == victim.ID() {
			t.Fatalf("the new member has the old ID %x", m.ID)
		}
		delete(c.cfgs, victim.Name())
		back := c.join(victim.Name())
		c.applied(back, leader)
		if value, _ := c.get(back, ReadLease, "k"); value != "v" {
			t.Errorf("the new member reads %q, want v", value)
		}
	})
}

func TestJoiningIsRefused(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		l, err := c.net.Listen("m2:2380")
		if err != nil {
			t.Fatal(err)
		}
		cfg := c.cfgs["m1"]
		cfg.Cluster = append(cfg.Cluster[:1:1], Member{Name: "m2", PeerURLs: peerURLs("m2")})
		cfg.Name, cfg.DataDir, cfg.Existing, cfg.Dial, cfg.Listener = "m2", filepath.Join(t.TempDir(), "m2"), true, c.net.Dialer("m2"), l
		if _, err := Start(cfg); !errors.Is(err, ErrMemberNotFound) {
			t.Errorf("Start() of a member that was not added = %v, want ErrMemberNotFound", err)
		}
		if err := leader.RemoveMember(t.Context(), leader.ID()); !errors.Is(err, ErrNotStarted) {
			t.Errorf("RemoveMember() of the last voter = %v, want ErrNotStarted", err)
		}
		if _, err := leader.AddMember(t.Context(), peerURLs("m1"), false); !errors.Is(err, ErrMemberExists) {
			t.Errorf("AddMember() with a URL in use = %v, want ErrMemberExists", err)
		}
		for name, err := range map[string]error{
			"PromoteMember": leader.PromoteMember(t.Context(), 0),
			"UpdateMember":  leader.UpdateMember(t.Context(), 0, peerURLs("m9")),
			"RemoveMember":  leader.RemoveMember(t.Context(), 0),
		} {
			if !errors.Is(err, ErrMemberNotFound) {
				t.Errorf("%s(0) = %v, want ErrMemberNotFound", name, err)
			}
		}
		if _, err := leader.AddMember(t.Context(), nil, false); err == nil {
			t.Error("AddMember() without a peer URL = nil")
		}
		if err := leader.UpdateMember(t.Context(), leader.ID(), nil); err == nil {
			t.Error("UpdateMember() without a peer URL = nil")
		}
		if err := leader.UpdateMember(t.Context(), 7, peerURLs("m9")); !errors.Is(err, ErrMemberNotFound) {
			t.Errorf("UpdateMember(7) = %v, want ErrMemberNotFound", err)
		}
	})
}

// The strict reconfiguration check counts the members that the leader is connected to.
func TestStrictReconfiguration(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		others := c.followers(leader)
		c.crash(others[0])
		time.Sleep(time.Second)
		if err := leader.RemoveMember(t.Context(), others[1].ID()); !errors.Is(err, ErrUnhealthy) {
			t.Errorf("RemoveMember() of one that is up = %v, want ErrUnhealthy", err)
		}
		if err := leader.RemoveMember(t.Context(), others[0].ID()); err != nil {
			t.Errorf("RemoveMember() of the one that is down = %v, want nil", err)
		}
	})
}

// A change that a follower proposes takes effect although the leader has another change under way: a raise of the
// format, or the change of the other follower.
func TestChangesThatMeetAllTakeEffect(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.raised(leader)
		c.delay(25 * time.Millisecond)
		var all sync.WaitGroup
		for k := range 20 {
			all.Go(func() { leader.versions.propose(store.ClusterVersionNewest) })
			time.Sleep(time.Duration(k) * 4 * time.Millisecond)
			for _, n := range c.followers(leader) {
				all.Go(func() {
					if err := n.UpdateMember(t.Context(), n.ID(), []string{fmt.Sprintf("http://%s:2380", n.Name())}); err != nil {
						t.Errorf("UpdateMember() through %s, %d ms after the raise = %v", n.Name(), 4*k, err)
					}
				})
			}
			all.Wait()
		}
	})
}

// An acknowledged change survives a crash: the remaining members elect a leader without the removed one. The log writes
// its commit index with the next entries only, and there are none here.
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

// gone stops a member for good.
func (c *cluster) gone(n *Node) {
	n.life.Fail(ErrRemoved)
	wantEnd(c.t, n)
	delete(c.nodes, n.Name())
}

// Of four members one is away and one is removed. The remaining two are a majority of three, and not of four.
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

// One of two voters and the promoted learner are a majority of three.
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

// An acknowledged change is on the disk although the appender's queue is blocked.
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

// The remaining member knows the change when the removed one answers the client. The removed member applies its removal
// first, since the disk of the other one is slow.
func TestTheRemainingMemberKnowsTheRemoval(t *testing.T) {
	var d disks
	inCluster(t, 2, d.use, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		other := c.followers(leader)[0]
		c.net.Delay(leader.Name(), other.Name(), 50*time.Millisecond)
		removed := make(chan error, 1)
		go func() { removed <- other.RemoveMember(t.Context(), other.ID()) }()
		time.Sleep(120 * time.Millisecond) // it is in both logs, and the leader does not know yet
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

// A change costs one sync more for its commit index, and one for the entry behind it. Other proposals cost none.
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

// A change is not applied, and not acknowledged, while the disk is too full for its commit index.
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

// A member that was added while another one was away is dialled by that one once it has restored a snapshot: the log
// with the change is gone.
func TestLinksFollowARestoredSnapshot(t *testing.T) {
	few := func(c *Config) { c.SnapshotCount, c.CatchUpEntries, c.LaxReconfig = 20, 5, true }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		away := c.followers(leader)[0].Name()
		c.stop(away)
		added, err := leader.AddMember(t.Context(), peerURLs("m4"), true) // it is never started, so it does not call
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			c.put(leader, "k", "v")
		}
		if first, _ := leader.wal.FirstIndex(); first < leader.Store().Applied()/2 {
			t.Fatalf("the log begins at %d of %d, so this shows nothing", first, leader.Store().Applied())
		}
		back := c.start(away)
		c.applied(back, leader)
		if _, linked := connected(back.links)[added.ID]; !linked {
			t.Errorf("no link to the added member after a snapshot, want one")
		}
	})
}
