package kvnode

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
	"github.com/leaderlease/go/raftwal/fs"
)

// storeOf returns the path of n's store.
func storeOf(n *Node) string { return filepath.Join(n.cfg.DataDir, memberdir.StateFile) }

// checkpointed makes a checkpoint, and returns its index and the store's file.
func checkpointed(t *testing.T, n *Node) (index uint64, db []byte) {
	t.Helper()
	if err := n.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n.Store().Durable().Index, readFile(t, storeOf(n))
}

// If the store is behind the log's snapshot, and the log has the entries in between, they are applied
// again, with the configuration changes among them.
func TestAStoreBehindTheLogsSnapshot(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "1")
		old, db := checkpointed(t, n)
		c.put(n, "k", "2")
		added, err := n.AddMember(t.Context(), []string{"http://x:1"}, true)
		if err != nil {
			t.Fatal(err)
		}
		c.put(n, "k", "3")
		at, _ := checkpointed(t, n)
		want, err := n.Store().HashKV(0)
		if err != nil {
			t.Fatal(err)
		}
		c.crash(n)
		if err := os.WriteFile(storeOf(n), db, 0o600); err != nil {
			t.Fatal(err)
		}

		n = c.start("m1")
		if got := n.Status().Checkpoint.Index; got != old {
			t.Errorf("the store begins at %d, want %d, where the log's snapshot is of %d", got, old, at)
		}
		if value, _ := c.get(n, ReadLease, "k"); value != "3" {
			t.Errorf("k = %q, want 3", value)
		}
		if got, err := n.Store().HashKV(0); err != nil || got != want {
			t.Errorf("HashKV(0) = %+v, %v, want %+v", got, err, want)
		}
		if m, ok := n.Store().Members().ByID[added.ID]; !ok || !m.Learner {
			t.Errorf("member %x is %+v, %v after the restart, want a learner", added.ID, m, ok)
		}
		// The next checkpoint is saved in the log as usual.
		now, _ := checkpointed(t, n)
		if snap, err := n.wal.Snapshot(); err != nil || now <= at || snap.GetMetadata().GetIndex() != now ||
			!slices.Equal(snap.GetMetadata().GetConfState().GetLearners(), []uint64{added.ID}) {
			t.Errorf("the log's snapshot is %v, %v, want one of %d with learner %x", snap, err, now, added.ID)
		}
	})
}

// A store without a checkpoint is at index 0.
func TestAStoreWithoutACheckpointBehindTheLog(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		empty := readFile(t, storeOf(n))
		c.put(n, "k", "1")
		checkpointed(t, n)
		c.crash(n)
		if err := os.WriteFile(storeOf(n), empty, 0o600); err != nil {
			t.Fatal(err)
		}
		n = c.start("m1")
		if value, _ := c.get(n, ReadLease, "k"); value != "1" {
			t.Errorf("k = %q, want 1", value)
		}
	})
}

// If the log lacks the entries in between, the member needs the file of the snapshot.
func TestAStoreTooFarBehindTheLog(t *testing.T) {
	few := func(cfg *Config) { cfg.CatchUpEntries = 1 }
	inCluster(t, 1, few, func(t *testing.T, c *cluster) {
		n := c.leader()
		_, db := checkpointed(t, n)
		for range 5 {
			c.put(n, "k", "v")
		}
		checkpointed(t, n)
		c.crash(n)
		if err := os.WriteFile(storeOf(n), db, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.tryStart("m1"); err == nil || !strings.Contains(err.Error(), ".snap cannot be restored") {
			t.Errorf("Start() = %v, want an error that names the file", err)
		}
	})
}

// The entries are not applied to the store of another log, although its index is in this log.
func TestAStoreOfAnotherLogIsRefused(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		checkpointed(t, n)
		conf := n.Store().Durable().ConfState
		c.crash(n)
		if err := os.Remove(storeOf(n)); err != nil {
			t.Fatal(err)
		}
		backend, err := boltdb.Open(storeOf(n))
		if err != nil {
			t.Fatal(err)
		}
		other, err := store.Open(store.Config{Backend: backend})
		if err != nil {
			t.Fatal(err)
		}
		other.ApplyConf(2, 99, conf, nil)
		if _, err := other.SaveCheckpoint(nil); err != nil {
			t.Fatal(err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.tryStart("m1"); err == nil || !strings.Contains(err.Error(), ".snap cannot be restored") {
			t.Errorf("Start() with a state of index 2 and term 99 = %v, want a refusal", err)
		}
	})
}

// Raft starts with the configuration of the store. That of the log's snapshot contains changes that are
// applied again.
func TestRaftBeginsWithTheStoresConfiguration(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		at, err := n.store.SaveCheckpoint(func(uint64) error { return n.wal.Flush() })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.AddMember(t.Context(), []string{"http://x:1"}, true); err != nil {
			t.Fatal(err)
		}
		checkpointed(t, n)
		if _, conf, err := n.wal.InitialState(); err != nil || len(conf.GetLearners()) != 1 {
			t.Fatalf("the log's configuration is %v, %v, want one learner", conf, err)
		}
		if _, conf, err := (startLog{n.wal, at.ConfState}).InitialState(); err != nil || !proto.Equal(conf, at.ConfState) {
			t.Errorf("raft's configuration is %v, %v, want %v", conf, err, at.ConfState)
		}
	})
}

// The sync of a checkpoint fails, and the process ends. The next process makes the store durable before
// its log starts there, so a power failure loses nothing.
func TestPowerFailureAfterAFailedSync(t *testing.T) {
	log, disk := fs.NewMemory(), storetest.NewDisk()
	amend := func(cfg *Config) {
		cfg.walFS = log
		cfg.wrapBackend = func(b store.Backend) store.Backend {
			_ = b.Close()
			return disk.Open()
		}
	}
	inCluster(t, 1, amend, func(t *testing.T, c *cluster) {
		restart := func(n *Node) *Node {
			c.crash(n)
			cfg := c.cfgs["m1"]
			log = log.EndProcess()
			amend(&cfg)
			c.cfgs["m1"] = cfg
			return c.start("m1")
		}
		n := c.leader()
		c.put(n, "k", "1")
		checkpointed(t, n)
		c.put(n, "k", "2")
		at := n.Store().Applied()
		disk.Fail(func(op storetest.Op) error {
			if op == storetest.OpSync {
				return syscall.EIO
			}
			return nil
		})
		if err := n.Checkpoint(t.Context()); !errors.Is(err, syscall.EIO) {
			t.Fatalf("Checkpoint() = %v, want EIO", err)
		}
		disk.Fail(nil)
		n = restart(n)
		if snap, err := n.wal.Snapshot(); err != nil || snap.GetMetadata().GetIndex() != at {
			t.Fatalf("the log's snapshot is %v, %v, want one of %d, which the store has", snap, err, at)
		}
		disk.PowerFailure()
		n = restart(n)
		if got := n.Status().Checkpoint.Index; got != at {
			t.Errorf("the store begins at %d after a power failure, want %d", got, at)
		}
		if value, _ := c.get(n, ReadLease, "k"); value != "2" {
			t.Errorf("k = %q, want 2", value)
		}
	})
}
