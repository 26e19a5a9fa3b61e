package store_test

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// kept is the database of a store that ran keptScript under an older version and was killed.
const kept = "testdata/kept/2026-11-23.db.gz"

// keptScript writes all kinds of data that a checkpoint can have: versions, tombstones, values of
// various lengths, TTL leases with and without a generation, members, alarms, and compacted
// versions. It calls save in between, so that later checkpoints delete records.
func keptScript(r *replica, save func()) {
	r.log = append(r.log, nil)
	r.ApplyConf(1, 1, &raftpb.ConfState{Voters: []uint64{1, 2}}, &store.MemberChange{Set: &store.Member{ID: 1, PeerURLs: []string{"http://127.0.0.1:2380"}}})
	r.must(grant(7, 60))
	for i := range 120 {
		r.put(fmt.Sprintf("key/%03d", i%50), strings.Repeat("v", i*i%300))
	}
	r.must(putUnder("under", 7))
	r.must(del("key/010", "key/020"))
	save()
	r.must(txn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("key/012", "again"), opPut("a", "1"), opDelete("key/030", "key/033"), opPut("a", "2")}}))
	r.raise()
	r.must(grant(8, 90))
	r.must(putUnder("under", 8))
	r.must(del("key/04", "key/05"))
	r.must(activate(2, pb.AlarmType_NOSPACE))
	r.must(compact(r.Revision() - 2)) // the revision of the transaction
	save()
}

// records calls visit with the meta value and the records of a database.
func records(t *testing.T, path string, visit func(key, value string)) {
	t.Helper()
	b, err := boltdb.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := b.View()
	if err != nil {
		t.Fatal(err)
	}
	visit("meta", string(img.Meta()))
	err = img.Records(func(key, value []byte) error {
		visit(fmt.Sprintf("%x", key), string(value))
		return nil
	})
	if err := errors.Join(err, img.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
}

// unpack returns a copy of the kept database.
func unpack(t *testing.T) (path string) {
	t.Helper()
	f, err := os.Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	path = dbPath(t)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A data directory of an older version opens and shows the same data. The next checkpoint is byte
// for byte what the older version would write, so a downgrade is possible.
func TestADatabaseOfAnOlderVersionOpens(t *testing.T) {
	old, fresh := unpack(t), dbPath(t)
	was := &replica{t: t, Store: openBolt(t, old)}
	is := &replica{t: t, Store: openBolt(t, fresh)}
	keptScript(is, func() { checkpoint(t, is.Store) })
	was.log = slices.Clip(is.log)
	// All versions must compute the same hash, or mixed clusters raise the CORRUPT alarm (package
	// hashcheck).
	if got := hashOf(t, was.Store); got != hashOf(t, is.Store) || got.Hash != 1124938082 {
		t.Errorf("HashKV() = %+v, want %+v", got, hashOf(t, is.Store))
	}
	for rev := was.CompactRevision(); rev <= was.Revision(); rev++ {
		for _, limit := range []int64{0, 1, 20} {
			all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: rev, Limit: limit}
			if got, want := short(was.Range(t.Context(), all)), short(is.Range(t.Context(), all)); got != want {
				t.Errorf("Range(revision %d, limit %d) = %s, want %s", rev, limit, got, want)
			}
		}
	}
	if got, want := generationState(was.Store), generationState(is.Store); got != want {
		t.Errorf("TTL leases are %s, want %s", got, want)
	}
	saved := map[*replica]map[string]string{was: {}, is: {}}
	for r, path := range map[*replica]string{was: old, is: fresh} {
		r.must(del("key/001", ""))
		r.must(compact(r.Revision()))
		if err := r.FinishCompaction(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkpoint(t, r.Store)
		shut(t, r.Store)
		records(t, path, func(key, value string) { saved[r][key] = value })
	}
	if !maps.Equal(saved[was], saved[is]) {
		t.Errorf("the checkpoints after that differ: %q, want %q", saved[was], saved[is])
	}
}

// A checkpoint uses the first cluster version until the cluster version is raised, so older versions can
// read it. Afterwards they refuse it.
func TestCheckpointsSayTheirFormat(t *testing.T) {
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	r.must(grant(1, 10))
	r.must(putUnder("a", 1))
	checkpoint(t, r.Store)
	if state, lease := onDisk(t, r.Store, 1); r.ClusterVersion() != store.ClusterVersionFirst || !strings.Contains(state, `{"Format":1,`) || len(lease) != 7 {
		t.Errorf("ClusterVersion() = %d, and on disk %s with a TTL lease of %d bytes, want 1 and 7", r.ClusterVersion(), state, len(lease))
	}
	r.raise()
	r.must(grant(2, 20))
	checkpoint(t, r.Store)
	if state, lease := onDisk(t, r.Store, 2); !strings.Contains(state, `{"Format":2,`) || len(lease) != 8 {
		t.Errorf("on disk is %s with a TTL lease of %d bytes, want cluster version 2, and 8", state, len(lease))
	}
	snap := saveSnapshot(t, r.Store, t.TempDir())
	shut(t, r)
	again := openBolt(t, path)
	defer shut(t, again)
	want := `[1 of 0: 10, 10 left, ["a"] 2 of 4: 20, 20 left, []]`
	if got := generationState(again); got != want || again.ClusterVersion() != store.ClusterVersionNewest {
		t.Errorf("after a restart cluster version %d: %s, want %s", again.ClusterVersion(), got, want)
	}
	again.ApplyConf(again.Applied()+1, 1, nil, &store.MemberChange{ClusterVersion: store.ClusterVersionFirst})
	if got := again.ClusterVersion(); got != store.ClusterVersionNewest {
		t.Errorf("ClusterVersion() = %d after it was to be lowered, want %d", got, store.ClusterVersionNewest)
	}
	if c, err := boltdb.ReadCheckpoint(snap); err != nil || c.Index != 4 {
		t.Errorf("ReadCheckpoint() = %+v, %v, want one of index 4", c, err)
	}
}

// onDisk returns the meta value and the record of a TTL lease in the newest checkpoint.
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
