package kvnode

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/raftwal/fs"
)

// fullBackend is where the store lies on a disk that may be full.
type fullBackend struct {
	store.Backend
	full  atomic.Bool
	tried atomic.Int64
}

func (b *fullBackend) Update(fn func(store.Tx) error) error {
	b.tried.Add(1)
	if b.full.Load() {
		return syscall.ENOSPC
	}
	return b.Backend.Update(fn)
}

// A disk without room for a checkpoint is asked less and less often, not with each
// write, which go on as long as the log has room. Once there is room the
// checkpoint is made soon, and the next trouble begins with short pauses again.
func TestCheckpointsBackOffOnAFullDisk(t *testing.T) {
	var disk fullBackend
	amend := func(cfg *Config) {
		cfg.SnapshotCount = 1
		cfg.wrapBackend = func(b store.Backend) store.Backend {
			disk.Backend = b
			return &disk
		}
	}
	inCluster(t, 1, amend, func(t *testing.T, c *cluster) {
		n := c.leader()
		writeFor := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				c.put(n, "k", "v")
			}
		}
		tries := func(d time.Duration) int64 {
			before := disk.tried.Load()
			writeFor(d)
			return disk.tried.Load() - before
		}
		for round := range 2 {
			disk.full.Store(true)
			// At 0, 0.2, 0.6, 1.4, 3, 6.2 and 12.6 s, then each 10 s.
			if got := tries(time.Second); got < 3 || got > 4 {
				t.Errorf("round %d: %d tries in the first second, want 3 or so", round, got)
			}
			if got := tries(time.Minute); got < 7 || got > 10 {
				t.Errorf("round %d: %d tries in the next minute, want 8 or so", round, got)
			}
			if err := n.Err(); err != nil {
				t.Fatalf("Err() = %v, want the node to go on", err)
			}
			disk.full.Store(false)
			writeFor(maxCheckpointPause + time.Second)
			if behind := n.Status().Applied - n.Status().Checkpoint.Index; behind > 10 {
				t.Errorf("round %d: the checkpoint is %d entries behind once there is room, want few", round, behind)
			}
		}
	})
}

// The log keeps entries for followers that lag. On a full disk it gives them up, those
// that the newest checkpoint covers, whether another checkpoint finds room or not.
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

// A follower that lives and lags a little is not left to a snapshot, for which its disk
// has no room either, as long as the log has other segments to give.
func TestAFullDiskLeavesWhatALiveFollowerLacks(t *testing.T) {
	var d disks
	inCluster(t, 3, func(c *Config) { d.use(c); c.SegmentSize = 256 << 10 }, func(t *testing.T, c *cluster) {
		n := c.leader()
		lag := c.followers(n)[0]
		for range 6 {
			c.put(n, "k", strings.Repeat("v", 100<<10))
		}
		time.Sleep(time.Second)
		d.fill(lag) // its log takes nothing
		for range 3 {
			c.put(n, "k", strings.Repeat("v", 100<<10))
		}
		if err := n.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		before, _ := n.wal.FirstIndex()
		if err := n.checkpoints.shorten(n.store.Durable(), true); err != nil {
			t.Fatal(err)
		}
		first, _ := n.wal.FirstIndex()
		end, _ := lag.wal.LastIndex()
		if first == before || first > end+1 {
			t.Errorf("for room, the leader's log begins at %d, after %d, want less of it, and all behind %d, which a follower lacks", first, before, end)
		}
		// If that frees nothing any more, one segment goes: the follower must wait.
		at, ok := n.wal.FreesAt()
		if !ok {
			t.Fatal("all of the log is in one segment")
		}
		if err := n.checkpoints.shorten(n.store.Durable(), true); err != nil {
			t.Fatal(err)
		}
		if first, _ := n.wal.FirstIndex(); first != at+1 || first <= end+1 {
			t.Errorf("for room, the leader's log begins at %d, want %d: one segment less", first, at+1)
		}
		d.free(lag)
		c.put(n, "k", "last")
		time.Sleep(2 * time.Second)
		if value, _ := c.get(lag, ReadIndex, "k"); value != "last" {
			t.Errorf("k = %.10q at the follower once it has room, want last", value)
		}
	})
}

// What lies in the segment that is written to makes no room.
func TestAFullDiskKeepsWhatFreesNothing(t *testing.T) {
	inCluster(t, 1, disks{}.use, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		if err := n.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := n.checkpoints.shorten(n.store.Durable(), true); err != nil {
			t.Fatal(err)
		}
		if first, _ := n.wal.FirstIndex(); first != 1 {
			t.Errorf("for room, the log begins at %d, want 1: there is no segment to free", first)
		}
	})
}

// A snapshot that finds no room is not tried again at once: its file takes what the log
// waits for.
func TestASnapshotWithoutRoomRests(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		m := &raftpb.Message{Snapshot: store.Checkpoint{Index: 99, Term: 9}.Snapshot()}
		for _, step := range []struct {
			wait time.Duration
			read bool
		}{{0, true}, {maxCheckpointPause / 2, false}, {maxCheckpointPause, true}} {
			time.Sleep(step.wait)
			err := peers{n}.ReceiveSnapshot(m, 1, iotest.ErrReader(syscall.ENOSPC))
			if err == nil || isNoSpace(err) != step.read {
				t.Errorf("ReceiveSnapshot() %v later = %v, want that it is tried: %v", step.wait, err, step.read)
			}
		}
	})
}

// A snapshot that raft did not take lies about until a checkpoint is as new. What
// may be restored yet stays, and so does what is not this program's.
func TestSnapshotsThatNobodyRestoresGo(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		for range 5 {
			c.put(n, "k", "v")
		}
		at := n.Store().Applied()
		gone := []string{n.received.path(1), n.received.path(at), filepath.Join(n.received.dir, "123"+partSuffix)}
		stay := []string{n.received.path(at + 1)}
		for _, foreign := range []string{"1.snap", "000000000000000A.snap", "mine.snap", "mine.part", "0000000000000002.snap.bak"} {
			stay = append(stay, filepath.Join(n.received.dir, foreign))
		}
		for _, path := range slices.Concat(gone, stay) {
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, path := range gone {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%s is there after a checkpoint at %d, want it gone", path, at)
			}
		}
		for _, path := range stay {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s after a checkpoint at %d: %v, want it there", path, at, err)
			}
		}
		// What is being received is nobody else's to remove.
		part := filepath.Join(n.received.dir, "456"+partSuffix)
		if err := os.WriteFile(part, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.received.busy.Store(true)
		c.put(n, "k", "v")
		if err := n.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.received.busy.Store(false)
		if _, err := os.Stat(part); err != nil {
			t.Errorf("%s while it is received: %v, want it there", part, err)
		}
	})
}

// No two members make a checkpoint at the same time, or it would take processor and
// disk from all who could commit meanwhile. And none has more to do again than is due.
func TestMembersTakeTurnsWithCheckpoints(t *testing.T) {
	for _, c := range []struct {
		name  string
		count uint64 // Config.SnapshotCount
		size  int    // of a value
		every uint64 // entries
	}{
		{"by count", 30, 1, 30},
		{"by bytes", 1 << 20, checkpointBytes/30 - 50, 31},
		{"by bytes and, less often, by count", 90, checkpointBytes/30 - 50, 31},
	} {
		if testing.Short() && c.size > 1 {
			continue // large values take long under the race detector
		}
		t.Run(c.name, func(t *testing.T) {
			inCluster(t, 3, func(cfg *Config) { cfg.SnapshotCount = c.count }, func(t *testing.T, cluster *cluster) {
				checkpointsInTurns(t, cluster, strings.Repeat("v", c.size), c.every)
			})
		})
	}
}

func checkpointsInTurns(t *testing.T, c *cluster, value string, every uint64) {
	leader := c.leader()
	time.Sleep(time.Second) // all have published themselves
	made := make(map[uint64][]string)
	last := make(map[string]uint64)
	for range 5 * every {
		c.put(leader, "k", value)
		time.Sleep(time.Second)
		for name, n := range c.nodes {
			if at := n.Store().Durable().Index; at != last[name] {
				made[at] = append(made[at], name)
				if was, ok := last[name]; ok && at-was > every {
					t.Errorf("%s made checkpoints at %d and %d, want no more than %d entries between", name, was, at, every)
				}
				last[name] = at
			}
		}
	}
	if len(made) < 3*4 {
		t.Errorf("checkpoints at %d indexes, want 4 or 5 of each member's own", len(made))
	}
	for at, names := range made {
		if len(names) > 1 {
			t.Errorf("%v made a checkpoint at %d", names, at)
		}
	}
}
