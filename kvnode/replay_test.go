package kvnode

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// An acknowledged put is in every read after a crash, serializable ones included. The log of a member that
// is alone is committed, even if the commit index on its disk is older.
func TestNoReadAfterACrashIsOlderThanAnAcknowledgedPut(t *testing.T) {
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprintf("members=%d", members), func(t *testing.T) {
			inCluster(t, members, nil, func(t *testing.T, c *cluster) {
				for round := range 5 {
					n := c.leader()
					want := fmt.Sprint(round)
					c.put(n, "k", want)
					var all []*Node
					for _, n := range c.nodes {
						all = append(all, n)
					}
					c.crash(all...)
					for i := range members {
						c.start(fmt.Sprintf("m%d", i+1))
					}
					for name, n := range c.nodes {
						if got, _ := c.get(n, ReadSerializable, "k"); got != want {
							t.Errorf("%s reads %q right after the crash, want %q", name, got, want)
						}
					}
				}
			})
		})
	}
}

// A member that restarts without a quorum serves what its log says is committed, after a bounded wait.
func TestRestartWithoutAQuorum(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		c.put(leader, "l", "v") // its entry has the commit index of the first put
		f := c.followers(leader)[0]
		time.Sleep(time.Second)
		c.stop(f.Name())
		for _, n := range c.nodes {
			c.isolate(n)
		}
		f = c.start(f.Name())
		c.isolate(f)
		begun := time.Now()
		if got, _ := c.get(f, ReadSerializable, "k"); got != "v" {
			t.Errorf("the member reads %q, want v", got)
		}
		if took := time.Since(begun); took > (replayPatience+1)*f.cfg.ElectionTimeout {
			t.Errorf("the member's first read took %v, want at most %d election timeouts", took, replayPatience)
		}
	})
}

// startLagging restarts a member whose log has k = new, which it served, but not a commit index for it. The
// leader is another one by now, and must send a snapshot first, and the member's disk is full.
// CatchUpEntries must be small.
func (c *cluster) startLagging(d *disks) (f *Node) {
	c.t.Helper()
	first := c.leader()
	f, next := c.followers(first)[0], c.followers(first)[1]
	time.Sleep(5 * time.Second) // all members are registered
	c.put(first, "k", "old")
	time.Sleep(time.Second)
	d.fillAfter(f, 1)                    // the put, but not its commit index
	c.net.Cut(first.Name(), next.Name()) // so the put is not committed before f has it
	c.put(first, "k", "new")
	if got, _ := c.get(f, ReadLease, "k"); got != "new" {
		c.t.Fatalf("k = %q before the crash, want new", got)
	}
	c.crash(f)
	c.net.HealAll()
	for range 10 {
		c.put(first, "k", "newest")
	}
	for _, n := range []*Node{first, next} {
		if err := n.Checkpoint(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := first.MoveLeader(c.t.Context(), next.ID()); err != nil {
		c.t.Fatal(err)
	}
	c.net.Isolate(f.Name())
	f = c.start(f.Name())
	d.fill(f)
	c.net.HealAll()
	return f
}

// wantWaiting checks that stale reads of n wait.
func (c *cluster) wantWaiting(n *Node) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	if _, err := n.Read(ctx, ReadSerializable); err == nil {
		kv, _ := n.Store().Get([]byte("k"))
		c.t.Errorf("k = %q after the crash, want an error: it was new before", kv.GetValue())
	}
	if !n.Status().Replaying {
		c.t.Error("Replaying = false, want true")
	}
}

// A member needs a snapshot, which takes long because its disk is full. Meanwhile it does not serve less
// than before. The leader is new, and does not know what the member had acknowledged.
func TestStaleReadsWaitForTheLeader(t *testing.T) {
	var d disks
	few := func(cfg *Config) { d.use(cfg); cfg.CatchUpEntries = 1 }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		f := c.startLagging(&d)
		time.Sleep(4 * replayPatience * f.cfg.ElectionTimeout)
		if f.Leader() == 0 || f.Store().Applied() >= f.atStart.Last {
			t.Fatalf("leader %x, applied %d of %+v, want a leader, and less than the log", f.Leader(), f.Store().Applied(), f.atStart)
		}
		c.wantWaiting(f)
		d.free(f)
		if got, _ := c.get(f, ReadSerializable, "k"); got != "newest" {
			t.Errorf("k = %q once the disk has free space, want newest", got)
		}
	})
}

// The same if the leader is away when the wait would end. If it stays away, the wait ends later.
func TestStaleReadsWaitForALeaderThatReturns(t *testing.T) {
	var d disks
	few := func(cfg *Config) { d.use(cfg); cfg.CatchUpEntries = 1 }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		f := c.startLagging(&d)
		timeout := f.cfg.ElectionTimeout
		time.Sleep((replayPatience - 2) * timeout)
		if f.Leader() == 0 {
			t.Fatal("no leader, want one that goes away")
		}
		c.net.Isolate(f.Name())
		time.Sleep(2*timeout + timeout/2)
		if f.Leader() != 0 {
			t.Fatal("the leader is still there, want none when the wait would be over")
		}
		c.wantWaiting(f)
		c.net.HealAll()
		time.Sleep(timeout)
		c.wantWaiting(f)
		c.net.Isolate(f.Name())
		time.Sleep((2*replayPatience + 3) * timeout)
		if f.Status().Replaying {
			t.Errorf("stale reads still wait after %d election timeouts without a leader", 2*replayPatience+3)
		}
	})
}

// The context of a read bounds its wait.
func TestStaleReadEndsWithItsContext(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		c.crash(n)
		n = c.start("m1")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if r, err := n.Read(ctx, ReadSerializable); err == nil {
			t.Errorf("Read(serializable) before the log is applied = %+v, want an error", r)
		}
	})
}

// After the first configuration change beyond the commit index, the log of a member that was alone may have
// entries that are not committed.
func TestOwnEntriesEndAtAChange(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		<-n.Published()
		before := n.Store().Applied()
		if _, err := n.AddMember(t.Context(), []string{"http://x:1"}, true); err != nil {
			t.Fatal(err)
		}
		c.put(n, "k", "v")
		last := n.last.Load()
		change := n.replay.endAlone(before, last)
		if change >= last || firstChange(n.wal, before+1, change) != 0 || firstChange(n.wal, change, change+1) == 0 {
			t.Errorf("endAlone(%d, %d) = %d, want the first change", before, last, change)
		}
		if got := n.replay.endAlone(last-1, last); got != last {
			t.Errorf("endAlone(%d, %d) = %d, want all", last-1, last, got)
		}
	})
}

// A member that is alone does not serve less than its log has, however long it takes until it leads: here
// it cannot write its vote to its disk.
func TestSingleMemberWaitsForItsLog(t *testing.T) {
	var d disks
	inCluster(t, 1, d.use, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		c.crash(n)
		n = c.start("m1")
		d.fill(n)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Read(ctx, ReadSerializable); err == nil {
			kv, _ := n.Store().Get([]byte("k"))
			t.Errorf("k = %v before the log is applied, want an error", kv)
		}
		if err := n.Alive(); err != nil || !n.Status().Replaying {
			t.Errorf("Alive() = %v, Replaying = %v, want nil and true", err, n.Status().Replaying)
		}
		d.free(n)
		if got, _ := c.get(n, ReadSerializable, "k"); got != "v" {
			t.Errorf("k = %q, want v", got)
		}
		if n.Status().Replaying {
			t.Error("Replaying after a stale read was served")
		}
		if err := n.Stop(t.Context()); err != nil || !errors.Is(n.Alive(), ErrStopped) {
			t.Errorf("Stop() = %v, then Alive() = %v, want ErrStopped", err, n.Alive())
		}
	})
}

// A learner never forgets its last leader, because raft does not let it look for another one. It does not
// wait for a leader that is away.
func TestLearnerDoesNotWaitForALostLeader(t *testing.T) {
	var d disks
	few := func(cfg *Config) { d.use(cfg); cfg.CatchUpEntries = 1 }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		leader := c.leader()
		if _, err := leader.AddMember(t.Context(), peerURLs("m4"), true); err != nil {
			t.Fatal(err)
		}
		f := c.join("m4")
		c.applied(f, leader)
		time.Sleep(5 * time.Second) // all members are registered
		for _, n := range c.followers(leader) {
			if n != f {
				c.net.Cut(leader.Name(), n.Name()) // so the put is not committed before the crash
			}
		}
		done := make(chan error)
		go func() { done <- put(t.Context(), leader, "k", "new") }()
		time.Sleep(leader.cfg.ElectionTimeout / 4)
		c.crash(f)
		c.net.HealAll()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for range 10 {
			c.put(leader, "k", "newest")
		}
		for _, n := range c.followers(f) {
			if err := n.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := leader.MoveLeader(t.Context(), c.followers(leader)[0].ID()); err != nil { // it does not know what the learner had acknowledged
			t.Fatal(err)
		}
		c.net.Isolate("m4")
		f = c.start("m4")
		d.fill(f)
		c.net.HealAll()
		time.Sleep(2 * replayPatience * f.cfg.ElectionTimeout)
		if f.Leader() == 0 || f.Store().Applied() >= f.atStart.Last {
			t.Fatalf("leader %x, applied %d of %+v, want a leader, and less than the log", f.Leader(), f.Store().Applied(), f.atStart)
		}
		c.wantWaiting(f)
		c.net.Isolate("m4")
		time.Sleep((2*replayPatience + 3) * f.cfg.ElectionTimeout)
		if f.Status().Replaying {
			t.Errorf("stale reads still wait after %d election timeouts without leader %x", 2*replayPatience+3, f.Leader())
		}
	})
}

// A leader, which hears no other leader, waits until its log is applied.
func TestLeaderWaitsForItsLog(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		time.Sleep(2 * replayPatience * n.cfg.ElectionTimeout)
		synctest.Wait()
		n.replay.last = n.last.Load() + 1
		if !n.replay.mustWait(n.leadership.current.Load(), ErrTimeout, n.calls.leaderSilence) {
			t.Error("mustWait() on a leader that has not applied its log = false, want true")
		}
	})
}

// A member without a leader serves stale reads after replayPatience election timeouts, which exceeds
// RequestTimeout if election timeouts are long. Watches wait for that; reads do not.
func TestRequestTimeoutDoesNotBoundTheReplay(t *testing.T) {
	slow := func(cfg *Config) { cfg.ElectionTimeout = 2 * time.Second }
	inCluster(t, 3, slow, func(t *testing.T, c *cluster) {
		f := c.followers(c.leader())[0]
		c.crash(f)
		c.net.Isolate(f.Name())
		f = c.start(f.Name())
		if wait := replayPatience * f.cfg.ElectionTimeout; wait <= f.cfg.RequestTimeout {
			t.Fatalf("stale reads wait for %v, want more than RequestTimeout, %v", wait, f.cfg.RequestTimeout)
		}
		if _, err := f.Read(t.Context(), ReadSerializable); !errors.Is(err, ErrNoLeader) {
			t.Errorf("Read(serializable) = %v, want %v after RequestTimeout", err, ErrNoLeader)
		}
		if err := f.WaitForReplay(t.Context()); err != nil {
			t.Errorf("WaitForReplay() = %v, want nil after replayPatience election timeouts", err)
		}
	})
}
