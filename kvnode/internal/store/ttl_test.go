package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
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

// ttlState formats the TTL leases of a store.
func ttlState(s *store.Store) string {
	return leaseState(s, func(l store.TTLLease) string { return fmt.Sprint(l.ID) })
}

// generationState is ttlState with generations.
func generationState(s *store.Store) string {
	return leaseState(s, func(l store.TTLLease) string { return fmt.Sprintf("%d of %d", l.ID, l.Generation) })
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

// A key is attached to the lease that its newest version names.
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
	// A refused transaction changes nothing.
	if _, err := r.request(txn(&pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestPut{RequestPut: putUnder("e", 1).GetPut()}},
		{Request: &pb.RequestOp_RequestPut{RequestPut: putUnder("f", 9).GetPut()}},
	}})); !errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
		t.Errorf("Apply(put under 9) = %v, want %v", err, rpctypes.ErrGRPCLeaseNotFound)
	}
	wantTTLState(t, r.Store, `[1: 10, 10 left, [] 2: 20, 20 left, ["d"]]`)
}

// A revocation deletes all keys of the lease in one revision, in order, and watchers get the
// events.
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
	for _, key := range []string{"b", "a", "c"} { // not sorted
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

// leader returns a command that the leader proposes to expire or checkpoint leases.
func leader(r *pb.InternalRaftRequest, generations ...uint64) *store.Command {
	return &store.Command{RequiredTerm: 1, Generations: generations, Request: r}
}

// A LeaseRevoke or LeaseCheckpoint affects only the generation that it names.
func TestARevocationNamesAGrant(t *testing.T) {
	r := newReplica(t)
	r.must(grant(1, 10))
	r.must(putUnder("a", 1))
	r.raise()
	r.must(grant(2, 20)) // entry 4
	r.must(putUnder("b", 2))
	notFound := rpctypes.ErrGRPCLeaseNotFound
	for _, step := range []struct {
		name string
		do   *store.Command
		want error
		then string
	}{
		{"of a grant before there were numbers", leader(revoke(1), 1), notFound, `[1 of 0: 10, 10 left, ["a"] 2 of 4: 20, 20 left, ["b"]]`},
		{"of another grant", leader(revoke(2), 3), notFound, `[1 of 0: 10, 10 left, ["a"] 2 of 4: 20, 20 left, ["b"]]`},
		{"of a leader that names none", leader(revoke(2)), store.ErrNoGeneration, `[1 of 0: 10, 10 left, ["a"] 2 of 4: 20, 20 left, ["b"]]`},
		{"what is left, of such a leader", leader(remember(2, 5)), store.ErrNoGeneration, `[1 of 0: 10, 10 left, ["a"] 2 of 4: 20, 20 left, ["b"]]`},
		{"what is left of another", leader(remember(2, 5), 0), nil, `[1 of 0: 10, 10 left, ["a"] 2 of 4: 20, 20 left, ["b"]]`},
		{"what is left", leader(remember(2, 5), 4), nil, `[1 of 0: 10, 10 left, ["a"] 2 of 4: 20, 5 left, ["b"]]`},
		{"of before", leader(revoke(1), 0), nil, `[2 of 4: 20, 5 left, ["b"]]`},
		{"and what came after", &store.Command{Request: grant(1, 30)}, nil, `[1 of 13: 30, 30 left, [] 2 of 4: 20, 5 left, ["b"]]`},
		{"is not hit by it again", leader(revoke(1), 0), notFound, `[1 of 13: 30, 30 left, [] 2 of 4: 20, 5 left, ["b"]]`},
		{"the right one", leader(revoke(2), 4), nil, `[1 of 13: 30, 30 left, []]`},
		{"a client means whichever there is", &store.Command{Request: revoke(1)}, nil, `[]`},
	} {
		if err := r.command(step.do); !errors.Is(err, step.want) {
			t.Errorf("Apply(%s) = %v, want %v", step.name, err, step.want)
		}
		if got := generationState(r.Store); got != step.then {
			t.Errorf("after %s: %s, want %s", step.name, got, step.then)
		}
	}
}

// Before ClusterVersionGenerations, leases have no generation, and commands that name one are malformed, as for
// older versions.
func TestGrantsNeedTheirFormat(t *testing.T) {
	r := newReplica(t)
	r.must(grant(1, 10))
	if err := r.command(leader(revoke(1), 0)); !errors.Is(err, store.ErrMalformed) {
		t.Errorf("Apply(revoke with a grant) = %v at the first cluster version, want %v", err, store.ErrMalformed)
	}
	if got, want := generationState(r.Store), `[1 of 0: 10, 10 left, []]`; got != want {
		t.Errorf("TTL leases = %s, want %s", got, want)
	}
	if err := r.command(leader(revoke(1))); err != nil {
		t.Errorf("Apply(revoke) = %v at the first cluster version, want nil", err)
	}
}
