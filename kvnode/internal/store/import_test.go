package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// busy returns a replica with puts, deletions and TTL leases, nothing of it compacted.
func busy(t *testing.T) *replica {
	t.Helper()
	r := newReplica(t)
	for i := range int64(40) {
		key := fmt.Sprintf("k%d", i%7)
		switch i % 4 {
		case 0:
			r.must(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: i + 1, TTL: 60 + i}})
			r.must(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte(key), Lease: i + 1}})
		case 1:
			r.must(&pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("k"), RangeEnd: []byte(key)}})
		default:
			r.put(key, strings.Repeat("v", int(i)))
		}
	}
	return r
}

// foreign describes what s has as another program would.
func foreign(t *testing.T, s *store.Store) *store.Foreign {
	t.Helper()
	return &store.Foreign{
		Index: 9, Term: 4, Revision: s.Revision(), Compacted: s.CompactRevision(), TTLLeases: s.TTLLeases(), CutBytes: 1000,
		Versions: func(visit func(sub uint32, kv *mvccpb.KeyValue) error) (err error) {
			var sub uint32
			var last int64
			_, herr := s.History(0, 1<<30, func(w store.Write) bool {
				sub++
				if w.KV.GetModRevision() != last {
					last, sub = w.KV.GetModRevision(), 0
				}
				if err == nil {
					err = visit(sub, w.KV.Message())
				}
				return err == nil
			})
			return errors.Join(err, herr)
		},
	}
}

// What is imported, in several commits, is what there was: versions, revisions and TTL
// leases with their keys.
func TestImport(t *testing.T) {
	r := busy(t)
	disk := storetest.NewDisk()
	if err := store.Import(disk.Open(), foreign(t, r.Store)); err != nil {
		t.Fatal(err)
	}
	if n := disk.Commits(); n < 3 {
		t.Errorf("Import() made %d commits, want some", n)
	}
	if at, err := store.Bootstrap(disk.Open(), newCluster()); err != nil || at.Index != 9 || at.Term != 4 || at.Revision != r.Revision() {
		t.Fatalf("Bootstrap() = %+v, %v, want index 9, term 4 and revision %d", at, err, r.Revision())
	}
	s := openStore(t, disk.Open())
	defer shut(t, s)
	sameHash(t, r.Store, s)
	for _, l := range r.TTLLeases() {
		got, _ := s.TTLLease(l.ID)
		if want := r.TTLKeys(l.ID); got.TTL != l.TTL || len(s.TTLKeys(l.ID)) != len(want) {
			t.Errorf("TTL lease %x = %+v with keys %q, want %+v with %q", l.ID, got, s.TTLKeys(l.ID), l, want)
		}
	}
}

// An import that has failed, after whatever commit, has left no checkpoint.
func TestAnImportThatFailsLeavesNoCheckpoint(t *testing.T) {
	r := busy(t)
	for n := range 100 {
		disk := storetest.NewDisk()
		left := n
		disk.Fail(func(op storetest.Op) error {
			if op != storetest.OpCommit {
				return nil
			}
			if left == 0 {
				return errDisk
			}
			left--
			return nil
		})
		err := store.Import(disk.Open(), foreign(t, r.Store))
		if err == nil {
			if n < 3 {
				t.Errorf("it has %d commits, want some", n)
			}
			return
		}
		disk.Fail(nil)
		if _, rerr := store.Bootstrap(disk.Open(), newCluster()); !errors.Is(err, errDisk) || !errors.Is(rerr, store.ErrNoCheckpoint) {
			t.Errorf("after %d commits Import() = %v, Bootstrap() = %v, want %v and no checkpoint", n, err, rerr, errDisk)
		}
	}
}
