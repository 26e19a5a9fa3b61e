package store_test

import (
	"fmt"
	"io"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// writesFrom returns the writes that a watch from revision first on gets.
func writesFrom(t *testing.T, s *store.Store, first int64) (all []string) {
	t.Helper()
	_, err := s.History(first, 100, func(w store.Write) bool {
		kind := "PUT"
		if w.Deleted {
			kind = "DELETE"
		}
		all = append(all, fmt.Sprintf("%s %s@%d", kind, w.KV.GetKey(), w.KV.GetModRevision()))
		return true
	})
	if err != nil {
		t.Fatalf("History(%d) = %v", first, err)
	}
	return all
}

// A transaction that deletes a range and puts one of its keys writes that key twice at one
// revision. A compaction at that revision keeps both writes for a watch that starts there, even
// after a restart. The next compaction frees the first one.
func TestAKeyWrittenTwiceAtTheCompactedRevision(t *testing.T) {
	for _, test := range []struct {
		name        string
		ops         []*pb.RequestOp
		want, later []string
		records     int
	}{
		{
			"deleted, then put",
			[]*pb.RequestOp{opDelete("a", "\x00"), opPut("b", "2")},
			[]string{"DELETE a@4", "DELETE b@4", "PUT b@4"},
			[]string{"PUT z@5"},
			2,
		},
		{
			"put, then deleted",
			[]*pb.RequestOp{opPut("b", "2"), opDelete("a", "\x00")},
			[]string{"PUT b@4", "DELETE a@4", "DELETE b@4"},
			[]string{"PUT z@5"},
			1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			disk := storetest.NewDisk()
			r := &replica{t: t, Store: openStore(t, disk.Open())}
			restart := func() {
				t.Helper()
				if err := r.FinishCompaction(t.Context()); err != nil {
					t.Fatalf("FinishCompaction() = %v", err)
				}
				if _, err := r.SaveCheckpoint(nil); err != nil {
					t.Fatalf("SaveCheckpoint() = %v", err)
				}
				shut(t, r)
				r.Store = openStore(t, disk.Open())
			}
			r.put("a", "1")
			r.put("b", "1")
			r.must(txn(&pb.TxnRequest{Success: test.ops}))
			r.must(compact(r.Revision()))
			if got := writesFrom(t, r.Store, r.Revision()); !slices.Equal(got, test.want) {
				t.Errorf("after the compaction a watch is sent %q, want %q", got, test.want)
			}
			restart()
			if got := writesFrom(t, r.Store, r.Revision()); !slices.Equal(got, test.want) {
				t.Errorf("after a restart a watch is sent %q, want %q", got, test.want)
			}
			r.put("z", "1")
			r.must(compact(r.Revision()))
			restart()
			if got := writesFrom(t, r.Store, r.Revision()); !slices.Equal(got, test.later) {
				t.Errorf("after the next compaction a watch is sent %q, want %q", got, test.later)
			}
			if n := disk.Records(); n != test.records {
				t.Errorf("%d records are left on disk, want %d", n, test.records)
			}
			shut(t, r)
		})
	}
}

// A checkpoint does not contain versions that were compacted before it, even if an earlier
// checkpoint failed.
func TestWhatIsCompactedInTimeIsNotSaved(t *testing.T) {
	for _, fails := range []bool{false, true} {
		path := dbPath(t)
		r := &replica{t: t, Store: openBolt(t, path)}
		r.put("a", "1")
		r.put("a", "2")
		r.put("b", "1")
		r.must(del("b", ""))
		r.put("a", "3")
		r.must(compact(r.Revision()))
		if err := r.FinishCompaction(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.SaveCheckpoint(func(uint64) error {
			if fails {
				return io.ErrUnexpectedEOF
			}
			return nil
		}); (err != nil) != fails {
			t.Fatalf("SaveCheckpoint() = %v, want a failure: %v", err, fails)
		}
		checkpoint(t, r.Store)
		shut(t, r)
		var keys []string
		records(t, path, func(key, _ string) { keys = append(keys, key) })
		if want := []string{"meta", "0000000000000006" + "0000000000000000"}; !slices.Equal(keys, want) {
			t.Errorf("after a checkpoint that fails, %v: %q, want %q", fails, keys, want)
		}
	}
}
