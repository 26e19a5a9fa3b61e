package kvnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/leaderlease"
)

func TestFreshMembersServeWithinASecond(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		begun := time.Now()
		leader := c.leader()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("first linearizable read after %v, want below 1s", took)
		}
		c.put(leader, "k", "v")
		for _, n := range c.nodes {
			if value, _ := c.get(n, ReadLease, "k"); value != "v" {
				t.Errorf("%s reads %q, want v", n.Name(), value)
			}
		}
	})
}

func TestEachModeTakesItsPath(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(300 * time.Millisecond) // the lease is renewed
		c.put(leader, "k", "v")
		tests := []struct {
			on   *Node
			mode ReadMode
			want string
		}{
			{leader, ReadAuto, "lease"},
			{leader, ReadLease, "lease"},
			{leader, ReadIndex, "read_index"},
			{leader, ReadLog, "log"},
			{leader, ReadSerializable, "serializable"},
			{c.followers(leader)[0], ReadLease, "forwarded"},
			{c.followers(leader)[0], ReadLog, "log"},
			{c.followers(leader)[1], ReadIndex, "forwarded"},
		}
		answered := func() uint64 { return leader.Lease().Stats().Answered }
		for _, tc := range tests {
			value, path := c.get(tc.on, tc.mode, "k")
			if path != tc.want || value != "v" && tc.mode != ReadSerializable {
				t.Errorf("Read(%v) on %s = %q by %s, want v by %s", tc.mode, tc.on.Name(), value, path, tc.want)
			}
		}
		before := answered()
		c.get(c.followers(leader)[0], ReadIndex, "k")
		if n := answered() - before; n != 0 {
			t.Errorf("the leader answered %d ReadIndex reads from its lease, want 0", n)
		}
	})
}

// The leader is of a version that answers every follower from its lease: a read
// that trusts no clock goes through the log.
func TestReadIndexUnderAnOldLeader(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		c.put(c.leader(), "k", "v")
		f := c.followers(c.leader())[0]
		r, err := f.reads.roundOrLog(t.Context(), func(context.Context) (leaderlease.ReadResult, error) {
			return leaderlease.ReadResult{}, &leaderlease.NoLeaseError{Err: fmt.Errorf("old: %w", leaderlease.ErrLeaderTooOld)}
		})
		if err != nil || r.Path != pathLog {
			t.Errorf("Read(read-index) = by %s, %v, want by log", r.Path, err)
		}
	})
}

func TestWritesOnFollowersAreForwarded(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		for _, n := range c.followers(leader) {
			c.put(n, "by", n.Name())
			if value, _ := c.get(leader, ReadLease, "by"); value != n.Name() {
				t.Errorf("the leader reads %q after a write on %s", value, n.Name())
			}
		}
	})
}

func TestFailOverWaitsForThePromiseAndNotMuchLonger(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		// Raft's own random timeouts would be lucky now and then, not five times.
		for round := range 5 {
			old := c.leader()
			before, after := fmt.Sprint(round), fmt.Sprint(round, "'")
			c.put(old, "k", before)
			time.Sleep(time.Second)
			c.isolate(old)
			cut := time.Now()
			next := c.leader(old)
			took := time.Since(cut)
			// No connection has ended, so it is silence that decides. The last heartbeat may have
			// arrived one tick before the cut. A first turn may be lost, as ticks are not in step.
			if silence := old.cfg.ElectionTimeout - 2*old.cfg.TickInterval; took < silence || took > 1700*time.Millisecond {
				t.Errorf("next leader serves after %v, want between the silence of %v and 1.7s", took, silence)
			}
			c.put(next, "k", after)
			if s := c.leaseStatus(old); s == leaderlease.StatusValid {
				t.Errorf("the old leader's lease is still valid")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if r, err := old.Read(ctx, ReadLease); err == nil {
				t.Errorf("Read() on the old leader = %+v, want an error", r)
			}
			cancel()
			c.net.HealAll()
			if value, path := c.get(old, ReadLease, "k"); value != after {
				t.Errorf("the old leader reads %q by %s after the cut is healed, want %s", value, path, after)
			}
		}
	})
}

func TestMoveLeader(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		to := c.followers(leader)[1]
		if err := to.MoveLeader(t.Context(), to.ID()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("MoveLeader() on a follower = %v, want ErrNotLeader", err)
		}
		if err := leader.MoveLeader(t.Context(), 7); !errors.Is(err, ErrNotVoter) {
			t.Errorf("MoveLeader(7) = %v, want ErrNotVoter", err)
		}
		if err := leader.MoveLeader(t.Context(), to.ID()); err != nil {
			t.Fatalf("MoveLeader() = %v, want nil", err)
		}
		if now := c.leader(); now != to {
			t.Errorf("%s leads, want %s", now.Name(), to.Name())
		}
	})
}

func TestStopHandsOver(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		begun := time.Now()
		c.stop(leader.Name())
		c.leader()
		if took := time.Since(begun); took > shortPromise/2 { // it would take that long without one
			t.Errorf("the cluster was without a leader for %v, want a transfer", took)
		}
		if _, err := leader.Propose(t.Context(), &pb.InternalRaftRequest{}); !errors.Is(err, ErrStopped) {
			t.Errorf("Propose() after Stop = %v, want ErrStopped", err)
		}
		if _, err := leader.Read(t.Context(), ReadLease); !errors.Is(err, ErrStopped) {
			t.Errorf("Read() after Stop = %v, want ErrStopped", err)
		}
	})
}

func TestRestartKeepsEverything(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		for range 20 {
			c.put(leader, "k", "v")
		}
		revision := leader.Store().Revision()
		for _, name := range []string{"m1", "m2", "m3"} {
			c.stop(name)
		}
		for _, name := range []string{"m1", "m2", "m3"} {
			c.start(name)
		}
		leader = c.leader()
		if kv, _ := leader.Store().Get([]byte("k")); kv.GetVersion() != 20 || kv.GetModRevision() != revision {
			t.Errorf("after a restart k = %v, want version 20 at revision %d", kv, revision)
		}
	})
}

func TestWithoutAQuorum(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		for _, n := range c.followers(leader) {
			c.isolate(n)
		}
		taken := make(chan error, 1)
		go func() { taken <- put(t.Context(), leader, "k", "v") }()
		// CheckQuorum ends the leadership; what raft had taken is in doubt.
		if err := <-taken; !errors.Is(err, ErrLeaderChanged) {
			t.Errorf("a write under way when the quorum went = %v, want ErrLeaderChanged", err)
		}
		// It does not end with a tick, at which the write is offered to raft once more:
		// until raft has refused it, that is in doubt.
		ctx, cancel := context.WithTimeout(t.Context(), leader.cfg.TickInterval*3/2)
		defer cancel()
		if err := put(ctx, leader, "k", "v"); !errors.Is(err, ErrNoLeader) {
			t.Errorf("a write without a leader = %v, want ErrNoLeader", err)
		}
		if _, err := leader.Read(ctx, ReadLease); !errors.Is(err, ErrNoLeader) {
			t.Errorf("a read without a leader = %v, want ErrNoLeader", err)
		}
		if _, err := leader.Read(ctx, ReadSerializable); err != nil {
			t.Errorf("a serializable read = %v, want nil", err)
		}
		// A write that waits for a leader goes on when there is one.
		late := make(chan error, 1)
		go func() { late <- put(t.Context(), leader, "late", "v") }()
		time.Sleep(100 * time.Millisecond)
		c.net.HealAll()
		if err := <-late; err != nil {
			t.Errorf("a write that waited for a leader = %v, want nil", err)
		}
	})
}

func TestLimits(t *testing.T) {
	inCluster(t, 1, func(c *Config) { c.MaxRequestBytes = 1000 }, func(t *testing.T, c *cluster) {
		n := c.leader()
		err := put(t.Context(), n, "k", strings.Repeat("x", 1001))
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "1000") {
			t.Errorf("put of 1001 bytes = %v, want ErrTooLarge with the limit", err)
		}
		if err := put(t.Context(), n, "k", strings.Repeat("x", 900)); err != nil {
			t.Errorf("put of 900 bytes = %v, want nil", err)
		}
	})
}

// A follower that was away while the log was shortened gets the state instead,
// and the leader goes on meanwhile.
func TestCatchUpBySnapshot(t *testing.T) {
	few := func(c *Config) { c.SnapshotCount, c.CatchUpEntries = 50, 10 }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		leader := c.leader()
		away := c.followers(leader)[0]
		c.put(leader, "gone", "v")
		c.isolate(away)
		if _, err := leader.Propose(t.Context(), &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("gone")}}); err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			c.put(leader, "k", strings.Repeat("x", i))
		}
		if first, _ := leader.wal.FirstIndex(); first <= away.Store().Applied() {
			t.Fatalf("the log begins at %d, so %d needs no snapshot", first, away.Store().Applied())
		}
		c.net.HealAll()
		for range 500 {
			if away.Store().Applied() >= leader.Store().Applied() {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		a, errA := away.Store().HashKV(0)
		b, errB := leader.Store().HashKV(0)
		if errA != nil || errB != nil || a != b {
			t.Errorf("hashes %+v, %v and %+v, %v, want equal", a, errA, b, errB)
		}
		if left, _ := os.ReadDir(away.cfg.dir().Snaps()); len(left) != 0 {
			t.Errorf("%v is left in %s, want nothing", left, away.cfg.dir().Snaps())
		}
		c.stop(away.Name())
		c.start(away.Name())
		if value, _ := c.get(c.nodes[away.Name()], ReadLease, "gone"); value != "" {
			t.Errorf("a deleted key reads %q after restoring and restarting", value)
		}
	})
}

// A member that lost its directory has lost its votes and promises, too.
func TestAWipedMemberIsRefused(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		victim := c.followers(leader)[0]
		c.put(leader, "k", "v")
		time.Sleep(time.Second) // all have published themselves
		c.stop(victim.Name())
		if err := os.RemoveAll(victim.cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		back := c.start(victim.Name())
		select {
		case <-back.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the member still runs after 10s")
		}
		if err := back.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("Err() = %v, want ErrLost", err)
		}
	})
}

// When all members start at once none has applied an entry, but the registrations in their logs count.
func TestAWipedMemberIsRefusedWhenAllStartAtOnce(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		victim := c.followers(leader)[0]
		c.put(leader, "k", "v")
		for _, n := range []string{"m1", "m2", "m3"} {
			c.crash(c.nodes[n])
		}
		if err := os.RemoveAll(victim.cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		back := c.start(victim.Name()) // first of all
		for _, n := range []string{"m1", "m2", "m3"} {
			if n != victim.Name() {
				c.start(n)
			}
		}
		wantEnd(t, back)
		if err := back.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("Err() = %v, want ErrLost", err)
		}
		if back.loop.admission.IsOpen() {
			t.Error("it has taken part before it was refused")
		}
		delete(c.nodes, victim.Name())
		if value, _ := c.get(c.leader(), ReadLease, "k"); value != "v" {
			t.Errorf("the others read %q, want v", value)
		}
	})
}

func TestAStalledDiskCostsTheLeaseReads(t *testing.T) {
	// What Disk.Tick does, without a disk: nothing ends for an election timeout.
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.raised(n)
		n.disk.WriteStarted()
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if s := c.leaseStatus(n); s != leaderlease.StatusDiskStalled {
			t.Errorf("TryRead() = %v with a stalled disk, want disk_stalled", s)
		}
		n.disk.WriteEnded()
		time.Sleep(300 * time.Millisecond)
		if s := c.leaseStatus(n); s != leaderlease.StatusValid {
			t.Errorf("TryRead() = %v once the disk answers, want valid", s)
		}
	})
}
