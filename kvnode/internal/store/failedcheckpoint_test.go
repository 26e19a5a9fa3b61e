package store_test

import (
	"errors"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// A checkpoint that failed may be found on the disk all the same. What it had of
// a key that was deleted and compacted since must not come back.
func TestFailedCheckpointBringsNoKeyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		s, err := store.Open(store.Config{Backend: disk.Open()})
		if err != nil {
			t.Fatal(err)
		}
		i := uint64(1)
		apply := func(r *pb.InternalRaftRequest) {
			i++
			data, err := (&store.Command{Request: r}).Encode()
			if err != nil {
				t.Fatal(err)
			}
			if res := s.Apply(i, 1, data); res.Err != nil {
				t.Fatal(res.Err)
			}
			synctest.Wait()
		}
		apply(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("a"), Value: []byte("1")}})
		disk.Fail(func(op storetest.Op) error {
			if op == storetest.OpCommitted {
				return errors.New("sync failed")
			}
			return nil
		})
		if _, err := s.Checkpoint(nil); err == nil {
			t.Fatal("want a failure")
		}
		disk.Fail(nil)
		apply(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("a")}})
		apply(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("b"), Value: []byte("1")}})
		apply(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 4}})
		if _, err := s.Checkpoint(nil); err != nil {
			t.Fatal(err)
		}
		before, _ := s.HashKV(0)
		s2, err := store.Open(store.Config{Backend: disk.Open()})
		if err != nil {
			t.Fatal(err)
		}
		after, _ := s2.HashKV(0)
		kv, _ := s2.Get([]byte("a"))
		if before != after || kv != nil {
			t.Fatalf("before %+v, after %+v, deleted key a is %v", before, after, kv)
		}
	})
}

// What a checkpoint that failed has left on the disk all the same is counted once,
// with its newest revision and its oldest.
func TestFailedCheckpointIsCountedOnce(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openStore(t, disk.Open())}
	for _, key := range pair {
		r.put(key, "1")
	}
	disk.Fail(func(op storetest.Op) error {
		if op == storetest.OpCommitted {
			return errDisk
		}
		return nil
	})
	if _, err := r.Checkpoint(nil); !errors.Is(err, errDisk) {
		t.Fatalf("Checkpoint() = %v, want %v", err, errDisk)
	}
	disk.Fail(nil)
	r.put("new", "1")
	checkpoint(t, r.Store)
	again := openStore(t, disk.Open())
	sameHash(t, r.Store, again)
	shut(t, again)
	shut(t, r)
}
