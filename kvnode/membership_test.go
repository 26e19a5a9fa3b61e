package kvnode

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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
		cfg = other // any one will do
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
		delete(c.nodes, leader.Name())
		next := c.leader()
		c.put(next, "k", "v")
		if _, err := c.tryStart(leader.Name()); err == nil {
			// It starts, since only the others know; and is told.
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
			t.Errorf("Start() of a member that nobody added = %v, want ErrMemberNotFound", err)
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

func TestStrictReconfiguration(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		others := c.followers(leader)
		c.crash(others[0])
		time.Sleep(time.Second)
		// With one of three down a fourth would make two of four.
		if _, err := leader.AddMember(t.Context(), peerURLs("m4"), false); !errors.Is(err, ErrUnhealthy) {
			t.Errorf("AddMember() with a member down = %v, want ErrUnhealthy", err)
		}
		if _, err := leader.AddMember(t.Context(), peerURLs("m4"), true); !errors.Is(err, ErrUnhealthy) {
			t.Errorf("AddMember() of a learner with a member down = %v, want ErrUnhealthy", err)
		}
		if err := leader.RemoveMember(t.Context(), others[1].ID()); !errors.Is(err, ErrUnhealthy) {
			t.Errorf("RemoveMember() of one that is up = %v, want ErrUnhealthy", err)
		}
		if err := leader.RemoveMember(t.Context(), others[0].ID()); err != nil {
			t.Errorf("RemoveMember() of the one that is down = %v, want nil", err)
		}
	})
}
