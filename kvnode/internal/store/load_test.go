package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// A load returns with all keys in order, whether they were written in order or at random, and for
// numbers around the size of a batch.
func TestAStartHasAllKeysInOrder(t *testing.T) {
	most := 20_000
	if testing.Short() {
		most = 5_000
	}
	for _, n := range []int{0, 1, 1023, 1024, 1025, most} {
		for _, keys := range [][]int{ascending(n), rand.New(rand.NewPCG(1, uint64(n))).Perm(n)} {
			disk := storetest.NewDisk()
			r := &replica{t: t, Store: openStore(t, disk.Open())}
			for _, i := range keys {
				r.put(fmt.Sprintf("%06d", i), "v")
			}
			checkpoint(t, r.Store)
			shut(t, r.Store)
			s := openStore(t, disk.Open())
			resp, err := s.Range(t.Context(), &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
			if err != nil || len(resp.GetKvs()) != n || resp.GetCount() != int64(n) {
				t.Fatalf("%d keys, count %d, %v, want %d", len(resp.GetKvs()), resp.GetCount(), err, n)
			}
			for i, kv := range resp.GetKvs() {
				if got, want := string(kv.GetKey()), fmt.Sprintf("%06d", i); got != want {
					t.Fatalf("key %d is %s, want %s", i, got, want)
				}
			}
			shut(t, s)
		}
	}
}

func ascending(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// A crash at any step of a restore leaves the old state or the new one.
func TestCrashAtEveryStepOfARestore(t *testing.T) {
	leader := &replica{t: t, Store: openStore(t, newBackend())}
	defer leader.Close()
	script(leader, 1, 80)
	checkpoint(t, leader.Store)
	fresh := hashOf(t, leader.Store)
	for _, c := range []struct {
		op     storetest.Op
		landed bool
	}{{storetest.OpStage, false}, {storetest.OpInstall, false}, {storetest.OpInstalled, true}} {
		disk := storetest.NewDisk()
		s := openStore(t, disk.Open())
		replay(s, leader.log[:20])
		checkpoint(t, s)
		old, oldIndex := hashOf(t, s), s.Applied()
		snap := saveSnapshot(t, leader.Store, t.TempDir())
		disk.Fail(failing(c.op))
		if err := s.Restore(snap); !errors.Is(err, errDisk) {
			t.Errorf("Restore() failing at %s = %v, want %v", c.op, err, errDisk)
		}
		disk.Fail(nil)
		if got := hashOf(t, s); got != old || s.Applied() != oldIndex || s.Durable().Index != oldIndex {
			t.Errorf("after %s failed: %+v at %d, want the old state %+v at %d", c.op, got, s.Applied(), old, oldIndex)
		}
		replay(s, leader.log[:21])
		if _, err := s.SaveCheckpoint(nil); (err != nil) != c.landed {
			t.Errorf("SaveCheckpoint() after %s failed = %v", c.op, err)
		}
		again := openStore(t, disk.Open()) // crash
		if want := map[bool]uint64{false: 21, true: uint64(len(leader.log))}[c.landed]; again.Applied() != want {
			t.Errorf("Applied() = %d after %s failed and a crash, want %d", again.Applied(), c.op, want)
		}
		replay(again, leader.log)
		if got := hashOf(t, again); got != fresh {
			t.Errorf("HashKV = %+v after %s failed, a crash and a replay, want %+v", got, c.op, fresh)
		}
		shut(t, again)
		shut(t, s)
	}
}

// After a failed rename, in a restore or a defragmentation, checkpoints fail: the open file may
// have lost its name.
func TestNothingIsCommittedToAFileThatMayHaveLostItsName(t *testing.T) {
	for name, replace := range map[string]func(s *store.Store, snap string) error{
		"restore":         func(s *store.Store, snap string) error { return s.Restore(snap) },
		"defragmentation": func(s *store.Store, _ string) error { return s.Defragment(t.Context()) },
	} {
		path := dbPath(t)
		r := &replica{t: t, Store: openBolt(t, path)}
		r.put("a", "1")
		checkpoint(t, r.Store)
		snap := saveSnapshot(t, r.Store, t.TempDir())
		// A non-empty directory makes the rename fail.
		if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := replace(r.Store, snap); err == nil {
			t.Errorf("%s = nil, want an error", name)
		}
		r.put("a", "2")
		before := r.Durable().Index
		if _, err := r.SaveCheckpoint(nil); err == nil || r.Durable().Index != before {
			t.Errorf("SaveCheckpoint() after a failed %s = %v with %d durable, want an error", name, err, r.Durable().Index)
		}
		if kv, _ := r.Get([]byte("a")); string(kv.GetValue()) != "2" {
			t.Errorf("Get(a) = %v after a failed %s, want 2", kv, name)
		}
		shut(t, r)
	}
}
