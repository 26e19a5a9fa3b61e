package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// writesOf returns the result of History, one line per write.
func writesOf(t *testing.T, s *store.Store, first int64, limit int) (lines []string, next int64) {
	t.Helper()
	next, err := s.History(first, limit, func(w store.Write) bool {
		lines = append(lines, writeText(w))
		return true
	})
	if err != nil {
		t.Fatalf("History(%d, %d) = %v", first, limit, err)
	}
	return lines, next
}

func writeText(w store.Write) string {
	line := fmt.Sprintf("%d %s=%s", w.KV.GetModRevision(), w.KV.GetKey(), w.KV.GetValue())
	if w.Deleted {
		line = fmt.Sprintf("%d -%s", w.KV.GetModRevision(), w.KV.GetKey())
	}
	if w.Prev != nil {
		line += fmt.Sprintf(" was %s", w.Prev.GetValue())
	}
	return line
}

func TestHistoryShowsTheWritesInOrder(t *testing.T) {
	r := newReplica(t)
	r.put("b", "1")                                                                         // 2
	r.must(txn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("b", "2"), opPut("a", "2")}})) // 3
	r.must(del("a", "c"))                                                                   // 4
	r.put("a", "3")                                                                         // 5
	all := []string{"2 b=1", "3 b=2 was 1", "3 a=2", "4 -a was 2", "4 -b was 2", "5 a=3"}
	for _, c := range []struct {
		name  string
		first int64
		limit int
		want  []string
		next  int64
	}{
		{"all", 0, 100, all, 6},
		{"a part", 4, 100, all[3:], 6},
		{"the newest", 5, 100, all[5:], 6},
		{"nothing yet", 6, 100, nil, 6},
		{"the future", 9, 100, nil, 9},
		{"limited at the end of a revision", 2, 3, all[:3], 4},
		{"limited within a revision", 2, 2, all[:3], 4},
		{"limited to nothing", 2, 0, nil, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, next := writesOf(t, r.Store, c.first, c.limit)
			if !slices.Equal(got, c.want) || next != c.next {
				t.Errorf("History(%d, %d) = %q, %d, want %q, %d", c.first, c.limit, got, next, c.want, c.next)
			}
		})
	}
	n := 0
	next, err := r.History(2, 100, func(store.Write) bool { n++; return n != 2 })
	if n != 3 || next != 4 || err != nil {
		t.Errorf("History() stopped in revision 3 = %d, %v after %d writes, want 4 after all 3", next, err, n)
	}
}

// The history starts at the compacted revision, without previous versions, also after a restart or
// a restore.
func TestHistoryEndsAtTheCompactedRevision(t *testing.T) {
	r := newReplica(t)
	r.put("a", "1")
	r.put("b", "1")
	r.must(del("a", ""))
	r.put("b", "2")
	r.must(compact(4))
	want := []string{"4 -a", "5 b=2 was 1"}
	check := func(name string, s *store.Store) {
		t.Helper()
		if got, next := writesOf(t, s, 4, 100); !slices.Equal(got, want) || next != 6 {
			t.Errorf("%s: History(4) = %q, %d, want %q, 6", name, got, next, want)
		}
		if _, err := s.History(3, 100, func(store.Write) bool { return true }); !errors.Is(err, rpctypes.ErrGRPCCompacted) {
			t.Errorf("%s: History(3) = %v, want %v", name, err, rpctypes.ErrGRPCCompacted)
		}
	}
	check("in memory", r.Store)
	checkpoint(t, r.Store)
	other := openStore(t, newBackend())
	defer other.Close()
	if err := other.Restore(saveSnapshot(t, r.Store, t.TempDir())); err != nil {
		t.Fatal(err)
	}
	check("restored", other)
}

// Readers of the history see each revision once, complete and in order, or an error that it is
// compacted, while pages are added and dropped.
func TestHistoryIsReadWhileItIsWritten(t *testing.T) {
	const perRevision = 100
	revisions := 600
	if testing.Short() {
		revisions = 200
	}
	r := newReplica(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	readUntil(&wg, stop, 2, func() {
		first := max(r.CompactRevision(), 2)
		n := int64(0)
		got, err := r.History(first, 1<<20, func(w store.Write) bool {
			if w.KV.GetModRevision() != first+n/perRevision {
				return false
			}
			n++
			return true
		})
		switch {
		case errors.Is(err, rpctypes.ErrGRPCCompacted):
		case err != nil || n != (got-first)*perRevision:
			t.Errorf("History(%d) = %d, %v with %d writes in order, want %d of each revision", first, got, err, n, perRevision)
		}
	})
	for i := range revisions {
		all := &pb.TxnRequest{}
		for k := range perRevision {
			all.Success = append(all.Success, opPut(fmt.Sprint("k", i%7*perRevision+k), "v"))
		}
		r.must(txn(all))
		if i%20 == 19 {
			r.must(compact(r.Revision() - 10))
		}
	}
	close(stop)
	wg.Wait()
	if got, _ := writesOf(t, r.Store, r.CompactRevision(), 1<<20); len(got) != 11*perRevision {
		t.Errorf("%d writes are left, want those from the compacted revision on, %d", len(got), 11*perRevision)
	}
}
