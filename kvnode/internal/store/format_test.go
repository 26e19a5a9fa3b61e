package store_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// leader is what counts the time of TTL leases says about those of grants.
func leader(r *pb.InternalRaftRequest, grants ...uint64) *store.Command {
	return &store.Command{Fence: 1, Grants: grants, Request: r}
}

// A revocation or a checkpoint that names a grant is about no other.
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
		{"of a leader that names none", leader(revoke(2)), store.ErrNoGrant, `[1 of 0: 10, 10 left, ["a"] 2 of 4: 20, 20 left, ["b"]]`},
		{"what is left, of such a leader", leader(remember(2, 5)), store.ErrNoGrant, `[1 of 0: 10, 10 left, ["a"] 2 of 4: 20, 20 left, ["b"]]`},
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
		if got := grantState(r.Store); got != step.then {
			t.Errorf("after %s: %s, want %s", step.name, got, step.then)
		}
	}
}

// Before the format is raised, nothing is numbered, and what names a grant is what it
// is for older versions: malformed.
func TestGrantsNeedTheirFormat(t *testing.T) {
	r := newReplica(t)
	r.must(grant(1, 10))
	if err := r.command(leader(revoke(1), 0)); !errors.Is(err, store.ErrMalformed) {
		t.Errorf("Apply(revoke with a grant) = %v in the first format, want %v", err, store.ErrMalformed)
	}
	if got, want := grantState(r.Store), `[1 of 0: 10, 10 left, []]`; got != want {
		t.Errorf("TTL leases = %s, want %s", got, want)
	}
	if err := r.command(leader(revoke(1))); err != nil {
		t.Errorf("Apply(revoke) = %v in the first format, want nil", err)
	}
}

// A checkpoint is in the first format until the cluster has another: older versions
// read it. From then on they refuse it.
func TestCheckpointsSayTheirFormat(t *testing.T) {
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	r.must(grant(1, 10))
	r.must(putUnder("a", 1))
	checkpoint(t, r.Store)
	if state, lease := onDisk(t, r.Store, 1); r.Format() != store.FormatFirst || !strings.Contains(state, `{"Format":1,`) || len(lease) != 7 {
		t.Errorf("Format() = %d, and on disk %s with a TTL lease of %d bytes, want 1 and 7", r.Format(), state, len(lease))
	}
	r.raise()
	r.must(grant(2, 20))
	checkpoint(t, r.Store)
	if state, lease := onDisk(t, r.Store, 2); !strings.Contains(state, `{"Format":2,`) || len(lease) != 8 {
		t.Errorf("on disk is %s with a TTL lease of %d bytes, want format 2, and 8", state, len(lease))
	}
	snap := saveSnapshot(t, r.Store, t.TempDir())
	shut(t, r)
	again := openBolt(t, path)
	defer shut(t, again)
	want := `[1 of 0: 10, 10 left, ["a"] 2 of 4: 20, 20 left, []]`
	if got := grantState(again); got != want || again.Format() != store.FormatNewest {
		t.Errorf("after a restart format %d: %s, want %s", again.Format(), got, want)
	}
	again.ApplyConf(again.Applied()+1, 1, nil, &store.MemberChange{Format: store.FormatFirst})
	if got := again.Format(); got != store.FormatNewest {
		t.Errorf("Format() = %d after it was to be lowered, want %d", got, store.FormatNewest)
	}
	if c, err := boltdb.ReadCheckpoint(snap); err != nil || c.Index != 4 {
		t.Errorf("ReadCheckpoint() = %+v, %v, want one of index 4", c, err)
	}
}

// onDisk returns the state and the record of a TTL lease in the newest checkpoint.
func onDisk(t *testing.T, s *store.Store, id uint64) (state string, lease []byte) {
	t.Helper()
	db, err := bbolt.Open(saveSnapshot(t, s, t.TempDir()), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		state = string(tx.Bucket([]byte("meta")).Get([]byte("state")))
		key := binary.BigEndian.AppendUint64(make([]byte, 8), id)
		lease = append(lease, tx.Bucket([]byte("key")).Get(key)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return state, lease
}
