package store_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// snapshotOfOldCluster returns a snapshot with keys at revisions 2 to 4, a lease, an alarm and a
// member.
func snapshotOfOldCluster(t *testing.T) (old *replica, path string) {
	t.Helper()
	old = &replica{t: t, Store: openBolt(t, dbPath(t))}
	t.Cleanup(func() { shut(t, old) })
	old.must(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 7, TTL: 60}})
	old.put("a", "1")
	old.put("a", "2")
	old.must(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("b"), Value: []byte("3"), Lease: 7}})
	old.must(activate(1, pb.AlarmType_NOSPACE))
	old.ApplyConf(old.Applied()+1, 5, &raftpb.ConfState{Voters: []uint64{1}}, &store.MemberChange{Set: &store.Member{ID: 1, Name: "old", Instance: "gone"}})
	old.ApplyConf(old.Applied()+1, 5, nil, &store.MemberChange{Remove: 9})
	checkpoint(t, old.Store)
	return old, saveSnapshot(t, old.Store, t.TempDir())
}

func bootstrapConfig() store.BootstrapConfig {
	return store.BootstrapConfig{
		Members:   []store.Member{{ID: 11, Name: "x"}, {ID: 12, Name: "y"}},
		ConfState: &raftpb.ConfState{Voters: []uint64{11, 12}},
	}
}

// A new cluster starts with the keys of the old one and without its members.
func TestBootstrapKeepsKeysAndForgetsMembers(t *testing.T) {
	old, path := snapshotOfOldCluster(t)
	r := bootstrapConfig()
	at, err := boltdb.Bootstrap(path, r)
	if err != nil || at.Index != old.Applied() || at.Term != 5 || at.Revision != 4 || !proto.Equal(at.ConfState, r.ConfState) {
		t.Fatalf("Bootstrap() = %+v, %v, want index %d, term 5, revision 4 and %v", at, err, old.Applied(), r.ConfState)
	}
	s := openBolt(t, path)
	defer shut(t, s)
	sameHash(t, old.Store, s)
	if kv, _ := s.Get([]byte("b")); kv.GetModRevision() != 4 || kv.GetTTLLease() != 7 {
		t.Errorf("b = %v, want it at revision 4 with lease 7", kv)
	}
	if l, ok := s.TTLLease(7); !ok || l.TTL != 60 {
		t.Errorf("TTLLease(7) = %+v, %v, want 60 s", l, ok)
	}
	if m := s.Members(); len(m.ByID) != 2 || m.ByID[12].Name != "y" || m.ByID[11].Instance != "" || len(m.Removed) != 0 {
		t.Errorf("Members() = %+v, want x and y, which have not started, and no removed member", m)
	}
	if got := s.Alarms(); len(got) != 0 {
		t.Errorf("Alarms() = %v, want none: they were about the old members", got)
	}
}

// With BumpRevision, revisions that clients of the old cluster have seen do not recur. They are
// compacted.
func TestBootstrapMayRaiseTheRevision(t *testing.T) {
	_, path := snapshotOfOldCluster(t)
	r := bootstrapConfig()
	r.BumpRevision, r.MarkCompacted = 1000, true
	if at, err := boltdb.Bootstrap(path, r); err != nil || at.Revision != 1004 {
		t.Fatalf("Bootstrap() = %+v, %v, want revision 1004", at, err)
	}
	s := openBolt(t, path)
	defer shut(t, s)
	if s.Revision() != 1004 || s.CompactRevision() != 1004 {
		t.Errorf("revision %d, compacted %d, want 1004 for both", s.Revision(), s.CompactRevision())
	}
	if kv, _ := s.Get([]byte("a")); string(kv.GetValue()) != "2" || kv.GetModRevision() != 3 || kv.GetVersion() != 2 {
		t.Errorf("a = %v, want 2 with the revisions it had", kv)
	}
	if _, err := s.Range(t.Context(), &pb.RangeRequest{Key: []byte("a"), Revision: 3}); !errors.Is(err, rpctypes.ErrGRPCCompacted) {
		t.Errorf("Range() as of revision 3 = %v, want it compacted", err)
	}
	data := encode(t, &store.Command{Request: put("a", "3")})
	if s.Apply(s.Applied()+1, 6, data); s.Revision() != 1005 {
		t.Errorf("revision after a put = %d, want 1005", s.Revision())
	}
	if _, err := s.SaveCheckpoint(nil); err != nil {
		t.Errorf("SaveCheckpoint() = %v", err)
	}
}

// A file that Bootstrap refuses stays as it is.
func TestBootstrapRefuses(t *testing.T) {
	_, whole := snapshotOfOldCluster(t)
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	empty := &replica{t: t, Store: openBolt(t, dbPath(t))}
	defer shut(t, empty)
	for name, c := range map[string]struct {
		data []byte
		bump int64
		want error
	}{
		"text":              {[]byte("this is no database, however long it may be"), 0, store.ErrForeign},
		"revision too high": {data, math.MaxInt64 - 3, nil},
		"none left":         {data, math.MaxInt64 - 4, nil}, // the next revision would overflow
		"too few left":      {data, math.MaxInt64/2 - 3, nil},
		"below zero":        {data, -1, nil},
	} {
		path := filepath.Join(t.TempDir(), "snap")
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		r := bootstrapConfig()
		r.BumpRevision = c.bump
		if _, err := boltdb.Bootstrap(path, r); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("Bootstrap(%s) = %v, want %v", name, err, c.want)
		}
		if c.want != nil {
			continue
		}
		if s, err := boltdb.Inspect(path); err != nil || s.Revision != 4 {
			t.Errorf("Inspect(%s) after the refusal = %+v, %v, want revision 4 still", name, s, err)
		}
	}
	if _, err := boltdb.Bootstrap(saveSnapshot(t, empty.Store, t.TempDir()), bootstrapConfig()); !errors.Is(err, store.ErrNoCheckpoint) {
		t.Errorf("Bootstrap() of an empty store = %v, want ErrNoCheckpoint", err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := boltdb.Bootstrap(missing, bootstrapConfig()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Bootstrap(missing) = %v, want ErrNotExist", err)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("Bootstrap() of a missing file has made it")
	}
}

// Inspect returns what a store returns after restoring the snapshot.
func TestInspect(t *testing.T) {
	old, path := snapshotOfOldCluster(t)
	got, err := boltdb.Inspect(path)
	if err != nil || got.Hash != hashOf(t, old.Store) || got.Index != old.Applied() || got.Revision != 4 {
		t.Fatalf("Inspect() = %+v, %v, want %+v at revision 4", got, err, hashOf(t, old.Store))
	}
	if got.Keys != 2 || got.Versions != 3 || got.TTLLeases != 1 {
		t.Errorf("Inspect() = %d keys, %d versions, %d leases, want 2, 3 and 1", got.Keys, got.Versions, got.TTLLeases)
	}
}

// UnsavedBytes counts writes until a checkpoint has them, even if a checkpoint fails in between.
func TestUnsavedIsWhatNoCheckpointHas(t *testing.T) {
	r := newReplica(t)
	if got := r.UnsavedBytes(); got != 0 {
		t.Errorf("UnsavedBytes() of an empty store = %d, want 0", got)
	}
	r.put("k", string(make([]byte, 10_000)))
	if got := r.UnsavedBytes(); got < 10_001 || got > 10_500 {
		t.Errorf("UnsavedBytes() after a put of 10,001 bytes = %d, want a little more", got)
	}
	written := r.UnsavedBytes()
	if _, err := r.SaveCheckpoint(func(uint64) error { return errDisk }); err == nil || r.UnsavedBytes() != written {
		t.Errorf("UnsavedBytes() after a checkpoint that failed = %d (%v), want %d", r.UnsavedBytes(), err, written)
	}
	if _, err := r.SaveCheckpoint(func(uint64) error { r.put("during", "1"); return nil }); err != nil {
		t.Fatal(err)
	}
	if got := r.UnsavedBytes(); got <= 0 || got > 200 {
		t.Errorf("UnsavedBytes() after a checkpoint = %d, want what was written meanwhile", got)
	}
	r.must(txn(&pb.TxnRequest{Success: []*pb.RequestOp{opRange("k", "")}}))
	r.must(del("k", ""))
	checkpoint(t, r.Store)
	if got := r.UnsavedBytes(); got != 0 {
		t.Errorf("UnsavedBytes() after everything is saved = %d, want 0", got)
	}
}

// A cluster starts with at least half of all revisions left, even from another program's snapshot.
func TestBootstrapLeavesRevisions(t *testing.T) {
	_, path := snapshotOfOldCluster(t)
	r := bootstrapConfig()
	r.BumpRevision, r.MarkCompacted = math.MaxInt64/2-4, true
	if at, err := boltdb.Bootstrap(path, r); err != nil || at.Revision != math.MaxInt64/2 {
		t.Errorf("Bootstrap() = %+v, %v, want half of all revisions", at, err)
	}
	for rev, ok := range map[int64]bool{math.MaxInt64 / 2: true, math.MaxInt64/2 + 1: false, math.MaxInt64: false} {
		b := storetest.NewDisk().Open()
		none := func(func(uint32, *mvccpb.KeyValue) error) error { return nil }
		if err := store.Import(b, &store.Foreign{Index: 1, Term: 1, Revision: rev, Compacted: -1, Versions: none}); err != nil {
			t.Fatal(err)
		}
		if at, err := store.Bootstrap(b, bootstrapConfig()); (err == nil) != ok {
			t.Errorf("Bootstrap() of revision %d = %+v, %v, want it taken: %v", rev, at, err, ok)
		}
	}
}

// busy returns a replica with puts, deletions and TTL leases, and without compactions.
func busy(t *testing.T) *replica {
	t.Helper()
	r := newReplica(t)
	for i := range int64(40) {
		key := fmt.Sprintf("k%d", i%7)
		switch i % 4 {
		case 0:
			r.must(grant(i+1, 60+i))
			r.must(putUnder(key, i+1))
		case 1:
			r.must(del("k", key))
		default:
			r.put(key, strings.Repeat("v", int(i)))
		}
	}
	return r
}

// foreign returns the content of s as that of another program.
func foreign(t *testing.T, s *store.Store) *store.Foreign {
	t.Helper()
	return &store.Foreign{
		Index: 9, Term: 4, Revision: s.Revision(), Compacted: s.CompactRevision(), TTLLeases: s.TTLLeases(), CommitBytes: 1000,
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

// An import in several commits preserves versions, revisions, and TTL leases with their keys.
func TestImport(t *testing.T) {
	r := busy(t)
	disk := storetest.NewDisk()
	if err := store.Import(disk.Open(), foreign(t, r.Store)); err != nil {
		t.Fatal(err)
	}
	if n := disk.Commits(); n < 3 {
		t.Errorf("Import() made %d commits, want some", n)
	}
	if at, err := store.Bootstrap(disk.Open(), bootstrapConfig()); err != nil || at.Index != 9 || at.Term != 4 || at.Revision != r.Revision() {
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

// An import that fails at any commit leaves no checkpoint.
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
		if _, rerr := store.Bootstrap(disk.Open(), bootstrapConfig()); !errors.Is(err, errDisk) || !errors.Is(rerr, store.ErrNoCheckpoint) {
			t.Errorf("after %d commits Import() = %v, Bootstrap() = %v, want %v and no checkpoint", n, err, rerr, errDisk)
		}
	}
}
