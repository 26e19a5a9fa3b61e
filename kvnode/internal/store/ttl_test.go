package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

func grant(id, ttl int64) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: ttl}}
}

func revoke(id int64) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: id}}
}

func remember(id, remaining int64) *pb.InternalRaftRequest {
	one := &pb.LeaseCheckpoint{ID: id, Remaining_TTL: remaining}
	return &pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{one}}}
}

func putUnder(key string, id int64) *pb.InternalRaftRequest {
	return &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Lease: id}}
}

// ttlState is what a store says about TTL leases, as text.
func ttlState(s *store.Store) string {
	return leaseState(s, func(l store.TTLLease) string { return fmt.Sprint(l.ID) })
}

// grantState is ttlState with the numbers of the grants.
func grantState(s *store.Store) string {
	return leaseState(s, func(l store.TTLLease) string { return fmt.Sprintf("%d of %d", l.ID, l.Grant) })
}

func leaseState(s *store.Store, name func(store.TTLLease) string) string {
	var out []string
	for _, l := range s.TTLLeases() {
		out = append(out, fmt.Sprintf("%s: %d, %d left, %q", name(l), l.TTL, l.Left(), s.TTLKeys(l.ID)))
	}
	return fmt.Sprint(out)
}

func wantTTLState(t *testing.T, s *store.Store, want string) {
	t.Helper()
	if got := ttlState(s); got != want {
		t.Errorf("TTL leases = %s, want %s", got, want)
	}
}

func TestGrant(t *testing.T) {
	for _, c := range []struct {
		name    string
		id, ttl int64
		want    error
		granted int64
	}{
		{"no ID", 0, 5, rpctypes.ErrGRPCLeaseNotFound, 0},
		{"ID in use", 7, 5, rpctypes.ErrGRPCLeaseExist, 0},
		{"longest", 8, store.MaxTTL, nil, store.MaxTTL},
		{"longer than the longest", 8, store.MaxTTL + 1, rpctypes.ErrGRPCLeaseTTLTooLarge, 0},
		{"negative ID", -8, 5, nil, 5},
		{"shortest", 8, 1, nil, 1},
		{"no TTL", 8, 0, nil, 1},
		{"negative TTL", 8, -1 << 63, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReplica(t)
			r.must(grant(7, 5))
			resp, err := r.request(grant(c.id, c.ttl))
			if !errors.Is(err, c.want) {
				t.Fatalf("Apply(grant %d of %d s) = %v, want %v", c.id, c.ttl, err, c.want)
			}
			if g, ok := resp.(*pb.LeaseGrantResponse); c.want == nil && (!ok || g.GetID() != c.id || g.GetTTL() != c.granted || g.GetHeader().GetRevision() != 1) {
				t.Errorf("Apply(grant %d of %d s) = %v, want a TTL of %d at revision 1", c.id, c.ttl, resp, c.granted)
			}
			if l, ok := r.TTLLease(c.id); c.want == nil && (!ok || l.TTL != c.granted) {
				t.Errorf("TTLLease(%d) = %+v, %v, want a TTL of %d", c.id, l, ok, c.granted)
			}
			if r.Revision() != 1 {
				t.Errorf("Revision() = %d, want 1: a grant is no write", r.Revision())
			}
		})
	}
}

// A key belongs to the TTL lease that its newest version names.
func TestKeysFollowTheirNewestVersion(t *testing.T) {
	r := newReplica(t)
	r.must(grant(1, 10))
	r.must(grant(2, 20))
	for _, step := range []struct {
		name string
		do   *pb.InternalRaftRequest
		want string
	}{
		{"attach", putUnder("b", 1), `[1: 10, 10 left, ["b"] 2: 20, 20 left, []]`},
		{"attach another", putUnder("a", 1), `[1: 10, 10 left, ["a" "b"] 2: 20, 20 left, []]`},
		{"move", putUnder("a", 2), `[1: 10, 10 left, ["b"] 2: 20, 20 left, ["a"]]`},
		{"ignore_lease keeps", &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("a"), Value: []byte("x"), IgnoreLease: true}}, `[1: 10, 10 left, ["b"] 2: 20, 20 left, ["a"]]`},
		{"a put without detaches", put("a", ""), `[1: 10, 10 left, ["b"] 2: 20, 20 left, []]`},
		{"a delete detaches", del("b", ""), `[1: 10, 10 left, [] 2: 20, 20 left, []]`},
		{"a transaction counts as a whole", txn(&pb.TxnRequest{Success: []*pb.RequestOp{
			opTxn(&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: putUnder("c", 1).GetPut()}}}}),
			opDelete("c", ""),
			{Request: &pb.RequestOp_RequestPut{RequestPut: putUnder("d", 2).GetPut()}},
		}}), `[1: 10, 10 left, [] 2: 20, 20 left, ["d"]]`},
		{"what is left", remember(2, 3), `[1: 10, 10 left, [] 2: 20, 3 left, ["d"]]`},
		{"more than all is all", remember(1, 30), `[1: 10, 10 left, [] 2: 20, 3 left, ["d"]]`},
		{"what is left, taken back", remember(2, 0), `[1: 10, 10 left, [] 2: 20, 20 left, ["d"]]`},
		{"what is left of nothing", remember(3, 1), `[1: 10, 10 left, [] 2: 20, 20 left, ["d"]]`},
	} {
		r.must(step.do)
		t.Log(step.name)
		wantTTLState(t, r.Store, step.want)
	}
	// What is refused leaves no trace.
	if _, err := r.request(txn(&pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestPut{RequestPut: putUnder("e", 1).GetPut()}},
		{Request: &pb.RequestOp_RequestPut{RequestPut: putUnder("f", 9).GetPut()}},
	}})); !errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
		t.Errorf("Apply(put under 9) = %v, want %v", err, rpctypes.ErrGRPCLeaseNotFound)
	}
	wantTTLState(t, r.Store, `[1: 10, 10 left, [] 2: 20, 20 left, ["d"]]`)
}

// Revoking deletes all keys in one revision, in order, and watchers hear of it.
func TestRevokeDeletesInOneRevision(t *testing.T) {
	var heard []string
	var gone []store.TTLLease
	s, err := store.Open(store.Config{
		Backend: newBackend(),
		Events: func(revision int64, writes []store.Write) {
			for _, e := range eventsOf(writes) {
				heard = append(heard, fmt.Sprintf("%v %s@%d/%d of lease %d", e.GetType(), e.GetKv().GetKey(), e.GetKv().GetModRevision(), revision, e.GetPrevKv().GetLease()))
			}
		},
		TTLEvents: func(l store.TTLLease) { gone = append(gone, l) },
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, Store: s}
	defer shut(t, r)
	r.must(grant(1, 10))
	for _, key := range []string{"b", "a", "c"} { // a map does not give them in order, wherever it begins
		r.must(putUnder(key, 1))
	}
	r.put("free", "")
	heard = nil
	resp, _ := r.must(revoke(1)).(*pb.LeaseRevokeResponse)
	want := []string{"DELETE a@6/6 of lease 1", "DELETE b@6/6 of lease 1", "DELETE c@6/6 of lease 1"}
	if !slices.Equal(heard, want) || resp.GetHeader().GetRevision() != 6 {
		t.Errorf("revoke gave %q in %v, want %q at revision 6", heard, resp, want)
	}
	if kv, _ := r.Get([]byte("free")); kv == nil {
		t.Error("a key without the TTL lease is gone, too")
	}
	if len(gone) != 2 || gone[0].TTL != 10 || gone[1] != (store.TTLLease{ID: 1}) {
		t.Errorf("TTL events = %+v, want the grant and the end of 1", gone)
	}
	if _, err := r.request(revoke(1)); !errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
		t.Errorf("Apply(revoke again) = %v, want %v", err, rpctypes.ErrGRPCLeaseNotFound)
	}
	r.must(grant(2, 10))
	if resp, _ := r.must(revoke(2)).(*pb.LeaseRevokeResponse); resp.GetHeader().GetRevision() != 6 || r.Revision() != 6 {
		t.Errorf("revoking without keys made revision %d, %d, want none: 6", resp.GetHeader().GetRevision(), r.Revision())
	}
}

// A revocation carries the term of the leader that decided on it. In any other it
// has no effect.
func TestARevocationOfAnotherTermIsDropped(t *testing.T) {
	r := newReplica(t)
	r.must(grant(1, 10))
	r.must(putUnder("a", 1))
	data := encode(t, &store.Command{ID: 5, Fence: 1, Request: revoke(1)})
	if res := r.Apply(3, 2, data); !errors.Is(res.Err, store.ErrFenced) || res.ID != 5 {
		t.Errorf("Apply(revoke of term 1, in term 2) = %+v, want %v", res, store.ErrFenced)
	}
	wantTTLState(t, r.Store, `[1: 10, 10 left, ["a"]]`)
	if kv, _ := r.Get([]byte("a")); kv == nil {
		t.Error("the key is gone")
	}
}

// What a checkpoint and a snapshot hold depends on no clock, and a state that was
// loaded goes on as the one that was saved.
func TestTTLLeasesSurvive(t *testing.T) {
	dir := t.TempDir()
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	r.must(grant(1, 10))
	r.must(grant(-2, store.MaxTTL))
	r.must(grant(3, 30))
	r.must(putUnder("a", 1))
	checkpoint(t, r.Store) // the rest is an increment
	r.must(putUnder("a", -2))
	r.must(putUnder("b", 1))
	r.must(putUnder("c", 3))
	r.must(remember(1, 4))
	r.must(revoke(3))
	want := `[-2: 9000000000, 9000000000 left, ["a"] 1: 10, 4 left, ["b"]]`
	wantTTLState(t, r.Store, want)
	checkpoint(t, r.Store)
	snap := saveSnapshot(t, r.Store, dir)
	shut(t, r)
	s := openBolt(t, path)
	defer shut(t, s)
	wantTTLState(t, s, want)

	other := openStore(t, newBackend())
	defer shut(t, other)
	other.Apply(1, 1, encode(t, &store.Command{Request: grant(9, 9)}))
	restored := openBolt(t, dbPath(t))
	defer shut(t, restored)
	if err := restored.Restore(snap); err != nil {
		t.Fatal(err)
	}
	wantTTLState(t, restored, want)
	sameHash(t, s, restored)
	// Keys are attached again: they go with the TTL lease.
	for _, one := range []*store.Store{s, restored} {
		if res := one.Apply(100, 1, encode(t, &store.Command{Request: revoke(1)})); res.Err != nil {
			t.Fatal(res.Err)
		}
		if kv, _ := one.Get([]byte("b")); kv != nil {
			t.Errorf("b = %v after its TTL lease was revoked", kv)
		}
	}
	sameHash(t, s, restored)
}

// What happened while a checkpoint failed is newer than what that would have
// saved.
func TestAFailedCheckpointBringsNoTTLLeaseBack(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openStore(t, disk.Open())}
	defer shut(t, r)
	r.must(grant(1, 10))
	r.must(grant(2, 10))
	_, err := r.Checkpoint(func(uint64) error {
		r.must(revoke(1))
		r.must(remember(2, 5))
		return errDisk
	})
	if !errors.Is(err, errDisk) {
		t.Fatalf("Checkpoint() = %v, want %v", err, errDisk)
	}
	checkpoint(t, r.Store)
	again := openStore(t, disk.Open())
	defer again.Close()
	wantTTLState(t, again, `[2: 10, 5 left, []]`)
}

// A TTL lease that is gone is gone from the disk, and one that came and went
// between two checkpoints leaves nothing.
func TestRevokedTTLLeasesLeaveTheDisk(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openStore(t, disk.Open())}
	defer shut(t, r)
	r.must(grant(1, 10))
	r.must(grant(2, 10))
	checkpoint(t, r.Store)
	r.must(revoke(1))
	r.must(grant(3, 10))
	r.must(revoke(3))
	checkpoint(t, r.Store)
	if got := disk.Records(); got != 1 {
		t.Errorf("%d records, want 1", got)
	}
	again := openStore(t, disk.Open())
	defer again.Close()
	wantTTLState(t, again, `[2: 10, 10 left, []]`)
}
