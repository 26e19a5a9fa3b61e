package kvnode

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/checkpoint"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/raftwal/fs"
)

// disks are in-memory disks of the members' logs.
type disks struct{}

// use gives a member its disk. It is an argument of inCluster.
func (disks) use(cfg *Config) { cfg.walFS = fs.NewMemory() }

func (disks) of(n *Node) *fs.Memory {
	disk, _ := n.cfg.walFS.(*fs.Memory)
	return disk
}

// fill makes the disk full. Writes to the reserved part of the log still succeed.
func (d *disks) fill(n *Node) { d.fillAfter(n, 0) }

// fillAfter makes the disk full after that many writes.
func (d *disks) fillAfter(n *Node, writes int64) { fillDisk(d.of(n), writes) }

func fillDisk(disk *fs.Memory, after int64) {
	var written atomic.Int64
	disk.SetHook(func(op fs.Op) *fs.Fault {
		if (op.Kind == fs.OpWrite || op.Kind == fs.OpCreate) && written.Add(1) > after {
			return &fs.Fault{Err: syscall.ENOSPC}
		}
		return nil
	})
}

func (d *disks) free(n *Node) { d.of(n).SetHook(nil) }

// untilFull writes until the node knows that its disk is full.
func (c *cluster) untilFull(n *Node) error {
	c.t.Helper()
	var err error
	for range 100 {
		if err = put(c.t.Context(), n, "k", "lost?"); err != nil && n.Status().DiskFull {
			return err
		}
	}
	c.t.Fatalf("100 puts on a full disk: the last one = %v, disk full %v, want a refusal", err, n.Status().DiskFull)
	return nil
}

// A leader with a full disk serves reads and refuses writes at once. It resumes when there is free space.
func TestAFullDiskStopsWritesOnly(t *testing.T) {
	var d disks
	var log lines
	inCluster(t, 1, func(cfg *Config) { d.use(cfg); cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		d.fill(n)
		_ = c.untilFull(n) // the write that has failed may or may not take effect
		if log.count("needed_bytes=1048576") == 0 {
			t.Error("the log does not say that 1 MiB is needed, a segment")
		}

		begun := time.Now()
		if err := put(t.Context(), n, "k", "refused"); !errors.Is(err, ErrDiskFull) || time.Since(begun) > 0 {
			t.Errorf("put on a full disk = %v after %v, want ErrDiskFull at once", err, time.Since(begun))
		}
		if _, err := n.AddMember(t.Context(), []string{"http://x:1"}, true); !errors.Is(err, ErrDiskFull) {
			t.Errorf("AddMember on a full disk = %v, want ErrDiskFull", err)
		}
		for range 100 { // for longer than a disk may hang
			time.Sleep(100 * time.Millisecond)
			if value, _ := c.get(n, ReadLease, "k"); value != "v" {
				t.Fatalf("k = %q on a full disk, want v", value)
			}
		}
		if err := n.Err(); err != nil {
			t.Fatalf("Err() on a full disk = %v", err)
		}
		if got := n.Status().Counts.FailedProposals; got == 0 {
			t.Error("FailedProposals = 0 on a full disk")
		}

		d.free(n)
		time.Sleep(500 * time.Millisecond)
		if n.Status().DiskFull {
			t.Error("the disk has room, but DiskFull says otherwise")
		}
		c.put(n, "k", "after")
		time.Sleep(time.Second)
		if value, path := c.get(n, ReadLease, "k"); value != "after" || path != "lease" {
			t.Errorf("k = %q by %s once there is room, want after, by lease", value, path)
		}
		c.stop("m1")
		n = c.start("m1")
		if value, _ := c.get(n, ReadLease, "k"); value != "after" {
			t.Errorf("k = %q after a restart, want after", value)
		}
	})
}

// A follower with a full disk serves reads, and the other members take writes.
func TestAFollowerWithAFullDisk(t *testing.T) {
	var d disks
	inCluster(t, 3, d.use, func(t *testing.T, c *cluster) {
		leader := c.leader()
		victim := c.followers(leader)[0]
		d.fill(victim)
		c.put(leader, "k", "v")
		time.Sleep(time.Second)
		if !victim.Status().DiskFull || leader.Status().DiskFull {
			t.Fatalf("DiskFull is %v at the victim and %v at the leader, want true and false", victim.Status().DiskFull, leader.Status().DiskFull)
		}
		if err := put(t.Context(), victim, "k", "refused"); !errors.Is(err, ErrDiskFull) {
			t.Errorf("put at the victim = %v, want ErrDiskFull", err)
		}
		if got := c.leaseStatus(leader); got != leaderlease.StatusValid {
			t.Errorf("the leader's lease is %v, want it valid", got)
		}
		c.put(leader, "k", "2")
		d.free(victim)
		time.Sleep(time.Second)
		if value, _ := c.get(victim, ReadIndex, "k"); value != "2" {
			t.Errorf("k at the victim = %q once there is room, want 2", value)
		}
		c.put(victim, "k", "3")
	})
}

// A leader with a full disk cannot apply what the other members commit, so it transfers leadership. Its own
// reads time out, and are served again when there is free space.
func TestALeaderOfThreeWithAFullDiskStepsAside(t *testing.T) {
	var d disks
	inCluster(t, 3, d.use, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.put(old, "k", "v")
		d.fill(old)
		_ = put(t.Context(), old, "k", "1")
		_ = put(t.Context(), c.followers(old)[0], "k", "2")
		time.Sleep(2 * time.Second)
		next := c.leader()
		if next == old || !old.Status().DiskFull {
			t.Fatalf("%s leads, DiskFull of the old leader is %v, want another leader and true", next.Name(), old.Status().DiskFull)
		}
		c.put(next, "k", "3")
		if value, path := c.get(next, ReadLease, "k"); value != "3" || path != "lease" {
			t.Errorf("k = %q by %s, want 3, by lease", value, path)
		}
		begun := time.Now()
		if _, err := old.Read(t.Context(), ReadIndex); !errors.Is(err, ErrTimeout) {
			t.Errorf("Read() at the member with a full disk = %v after %v, want ErrTimeout", err, time.Since(begun))
		}
		if kv, _ := old.Store().Get([]byte("k")); kv == nil { // serializable
			t.Error("k is gone at the member with a full disk")
		}
		d.free(old)
		time.Sleep(2 * time.Second)
		if value, _ := c.get(old, ReadIndex, "k"); value != "3" {
			t.Errorf("k at the old leader = %q once there is room, want 3", value)
		}
		c.put(old, "k", "4")
	})
}

// After each transfer, the leader waits: during a transfer, raft neither checks the quorum nor takes
// proposals.
func TestStepDownWaitsBetweenRounds(t *testing.T) {
	var d disks
	inCluster(t, 3, d.use, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.put(old, "k", "v")
		d.fill(old)
		_ = put(t.Context(), old, "k", "1")
		for range 1000 {
			if old.Leader() != old.ID() {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(old.cfg.ElectionTimeout)
		if !old.transfers.steppingAside.Load() {
			t.Error("another round may begin within an election timeout")
		}
		time.Sleep(old.cfg.ElectionTimeout)
		if old.transfers.steppingAside.Load() {
			t.Error("no other round may begin after two election timeouts")
		}
	})
}

// After a failed sync, the content of the disk is unknown, so the member ends without acknowledging the
// write.
func TestAFailedSyncEndsTheMember(t *testing.T) {
	for name, kind := range map[string]fs.Kind{"sync": fs.OpSync, "write": fs.OpWrite} {
		t.Run(name, func(t *testing.T) {
			var d disks
			inCluster(t, 1, d.use, func(t *testing.T, c *cluster) {
				n := c.leader()
				c.put(n, "k", "v")
				d.of(n).SetHook(func(op fs.Op) *fs.Fault {
					if op.Kind == kind {
						return &fs.Fault{Err: syscall.EIO}
					}
					return nil
				})
				if err := put(t.Context(), n, "k", "lost"); err == nil {
					t.Error("put = nil although its sync failed")
				}
				wantEnd(t, n)
				if err := n.Err(); !errors.Is(err, syscall.EIO) {
					t.Errorf("Err() = %v, want EIO", err)
				}
				if _, err := n.Read(t.Context(), ReadLease); !errors.Is(err, ErrStopped) {
					t.Errorf("Read() after the failure = %v, want ErrStopped", err)
				}
				if _, err := n.Read(t.Context(), ReadIndex); !errors.Is(err, ErrStopped) {
					t.Errorf("Read(ReadIndex) after the failure = %v, want ErrStopped", err)
				}
				delete(c.nodes, n.Name())
			})
		})
	}
}

// If two of three disks fail during a write, the write is not acknowledged.
func TestFailedSyncsNeverAcknowledge(t *testing.T) {
	var d disks
	inCluster(t, 3, d.use, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "v")
		for _, f := range c.followers(leader) {
			d.of(f).SetHook(func(op fs.Op) *fs.Fault {
				if op.Kind == fs.OpSync {
					return &fs.Fault{Err: syscall.EIO}
				}
				return nil
			})
		}
		if err := put(t.Context(), leader, "k", "lost"); err == nil {
			t.Error("put = nil although two of three syncs failed")
		}
		for _, f := range c.followers(leader) {
			wantEnd(t, f)
			if err := f.Err(); !errors.Is(err, syscall.EIO) {
				t.Errorf("Err() of %s = %v, want EIO", f.Name(), err)
			}
			delete(c.nodes, f.Name())
		}
	})
}

// The store is durable at an index for which the log has no snapshot, and the disk is full. The member
// starts with the configuration of the store, and resumes when there is free space.
func TestAFullDiskBetweenCheckpointAndLog(t *testing.T) {
	var d disks
	inCluster(t, 1, d.use, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		at, err := n.store.SaveCheckpoint(n.wal.SaveCommit)
		if err != nil {
			t.Fatal(err)
		}
		c.crash(n)
		cfg := c.cfgs["m1"]
		disk, _ := cfg.walFS.(*fs.Memory)                       // what the crash has left
		cfg.wrapBackend = func(b store.Backend) store.Backend { // called when the log is open
			fillDisk(disk, 0)
			return b
		}
		c.cfgs["m1"] = cfg
		n = c.start("m1")
		if snap, err := n.wal.Snapshot(); err != nil || snap.GetMetadata().GetIndex() != 0 {
			t.Fatalf("the log's snapshot is %v, %v, want none: there is no room for it", snap, err)
		}
		if got := n.lease.Info(); got.Commit < at.Index {
			t.Errorf("Status() of the lease = %+v, want commit %d at least", got, at.Index)
		}
		time.Sleep(5 * time.Second)
		if err := n.Err(); err != nil {
			t.Fatalf("Err() on a full disk = %v", err)
		}
		d.free(n)
		n = c.leader()
		if value, _ := c.get(n, ReadLease, "k"); value != "v" {
			t.Errorf("k = %q once there is room, want v", value)
		}
		time.Sleep(checkpoint.MaxPause)
		if snap, err := n.wal.Snapshot(); err != nil || snap.GetMetadata().GetIndex() < at.Index {
			t.Errorf("the log's snapshot is %v, %v once there is room, want index %d at least", snap, err, at.Index)
		}
		c.put(n, "k", "w")
	})
}

// A member does not start with a store that is ahead of its log, whatever free space there is.
func TestAStoreThatIsAheadOfItsLogIsRefused(t *testing.T) {
	var d disks
	inCluster(t, 1, d.use, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		if err := n.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		old := d.of(n).Durable()
		for range 10 {
			c.put(n, "k", "w")
		}
		c.stop("m1")
		cfg := c.cfgs["m1"]
		cfg.walFS = old
		c.cfgs["m1"] = cfg
		_, err := c.tryStart("m1")
		if !errors.Is(err, raft.ErrUnavailable) || !strings.Contains(err.Error(), "in the log, which has one of index") {
			t.Errorf("Start() with an old log = %v, want ErrUnavailable and both indexes", err)
		}
	})
}

// A single voter, whose disk needs more than a tick for a write, is elected once its vote is durable. It
// does not campaign again meanwhile.
func TestASoleVoterWaitsForItsVote(t *testing.T) {
	inCluster(t, 1, func(cfg *Config) { slowly(cfg, 120*time.Millisecond) }, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.crash(n)
		c.start(n.Name())
		if term := c.leader().Term(); term > 4 {
			t.Errorf("leads in term %d after a restart, want no more than one for each election", term)
		}
	})
}

// fullBackend is a backend on a disk that may be full.
type fullBackend struct {
	store.Backend
	full atomic.Bool
}

func (b *fullBackend) Update(fn func(store.Tx) error) error {
	if b.full.Load() {
		return syscall.ENOSPC
	}
	return b.Backend.Update(fn)
}

// On a full disk the log gives up the entries that it keeps for followers, up to the newest checkpoint,
// whether another checkpoint finds free space or not.
func TestAFullDiskIsFreedOfWhatFollowersMayWant(t *testing.T) {
	for _, tc := range []struct {
		name string
		full bool // no checkpoint can be made from then on
		want int  // writes of 320, of which an ungiving log takes 116
	}{
		{"room for a checkpoint", false, 280},
		{"no room for a checkpoint", true, 180},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var state fullBackend
			disk := fs.NewMemory()
			amend := func(cfg *Config) {
				cfg.walFS, cfg.SegmentSize = disk, 256<<10
				cfg.wrapBackend = func(b store.Backend) store.Backend {
					state.Backend = b
					return &state
				}
			}
			inCluster(t, 1, amend, func(t *testing.T, c *cluster) {
				n := c.leader()
				disk.SetCapacity(8 * 256 << 10)
				write := func() error { return put(t.Context(), n, "k", strings.Repeat("v", 8<<10)) }
				for range 100 {
					if err := write(); err != nil {
						t.Fatal(err)
					}
				}
				if err := n.Checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
				state.full.Store(tc.full)
				taken := 0
				for range 320 {
					if write() == nil {
						taken++
					}
					time.Sleep(100 * time.Millisecond)
				}
				if taken < tc.want {
					t.Errorf("%d of 320 writes were taken, want %d at least", taken, tc.want)
				}
				if err := n.Err(); err != nil {
					t.Errorf("Err() = %v", err)
				}
			})
		})
	}
}

// A snapshot that cannot be restored ends the member: the store would lack entries.
func TestASnapshotThatCannotBeRestoredEndsTheMember(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		lost := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(n.store.Applied() + 100), Term: new(n.Term())}}
		done := make(chan struct{})
		if n.applier.runJob(applyJob{restore: lost, done: done}) {
			t.Error("runJob() of a snapshot that is not there = true, want false")
		}
		wantEnd(t, n)
		if n.Err() == nil {
			t.Error("Err() = nil, want why the member has ended")
		}
	})
}
