package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

const countKeys = 3000

func countKey(i int) string { return fmt.Sprintf("%04d", i) }

// churn writes, deletes and compacts something at random.
func churn(r *replica, random *rand.Rand) {
	i := random.IntN(countKeys)
	switch kind := random.IntN(20); {
	case kind < 9:
		r.put(countKey(i), "v")
	case kind < 13:
		r.must(del(countKey(i), ""))
	case kind < 15:
		r.must(del(countKey(i), countKey(min(i+random.IntN(200), countKeys))))
	case kind < 18:
		t := &pb.TxnRequest{Success: []*pb.RequestOp{opDelete(countKey(i), countKey(i+3)), opPut(countKey(i), "a"), opDelete(countKey(i), ""), opPut(countKey(i+1), "b")}}
		for n := range random.IntN(60) {
			t.Success = append(t.Success, opPut(countKey(i+n), "c"))
		}
		r.must(txn(t))
	case kind < 19:
		// Refused half way: what it had done is taken back.
		t := &pb.TxnRequest{Success: []*pb.RequestOp{opPut(countKey(i)+"x", "a"), opDelete(countKey(i), countKey(i+9)), opRange(countKey(i), "")}}
		t.Success[2].GetRequestRange().Revision = r.Revision() + 1
		if _, err := r.request(txn(t)); !errors.Is(err, rpctypes.ErrGRPCFutureRev) {
			r.t.Fatalf("Apply(a read of the future) = %v", err)
		}
	default:
		if rev := r.Revision() - random.Int64N(400); rev > r.CompactRevision() {
			r.must(compact(rev))
		}
	}
}

// checkCount compares what is counted, of all of a range and behind a page, with the keys
// that the range has.
func checkCount(t *testing.T, s *store.Store, random *rand.Rand) {
	t.Helper()
	from := random.IntN(countKeys)
	r := &pb.RangeRequest{Key: []byte(countKey(from)), RangeEnd: []byte(countKey(random.IntN(countKeys + 1)))}
	if random.IntN(2) == 0 {
		r.Key, r.RangeEnd = []byte{0}, []byte{0}
	}
	newest := s.Revision()
	for _, back := range []int64{0, 1, random.Int64N(10), random.Int64N(500)} {
		r.Revision = max(newest-back, 1)
		r.CountOnly, r.Limit = false, 0
		all, err := s.Range(t.Context(), r)
		r.Limit = random.Int64N(20) + 1
		page, perr := s.Range(t.Context(), r)
		r.CountOnly = true
		count, cerr := s.Range(t.Context(), r)
		if err := errors.Join(err, perr, cerr); err != nil {
			if !errors.Is(err, rpctypes.ErrGRPCCompacted) {
				t.Errorf("Range(%v) = %v", r, err)
			}
			continue
		}
		want := int64(len(all.GetKvs()))
		if all.GetCount() != want || page.GetCount() != want || count.GetCount() != want {
			t.Errorf("Range(%v) counts %d, of a page %d, alone %d, want %d", r, all.GetCount(), page.GetCount(), count.GetCount(), want)
		}
		if got := int64(len(page.GetKvs())); got != min(want, r.GetLimit()) || page.GetMore() != (want > got) {
			t.Errorf("Range(%v) = %d keys, more %v, of %d", r, got, page.GetMore(), want)
		}
	}
}

// Counts by place are those of a look at each key: at the newest revision and at older
// ones, while others write and compact, and after restarts and restores.
func TestCountsAreThoseOfALook(t *testing.T) {
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	random := rand.New(rand.NewPCG(1, 1))
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		s := r.Store
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for i := range uint64(2) {
			own := rand.New(rand.NewPCG(uint64(round), i))
			readUntil(&wg, stop, 1, func() { checkCount(t, s, own) })
		}
		for i := range 500 {
			churn(r, random)
			if i%50 == 0 {
				checkCount(t, s, random)
			}
			if i%200 == 100 {
				checkpoint(t, s)
			}
		}
		close(stop)
		wg.Wait()
		checkpoint(t, s)
		if round%2 == 0 {
			if err := errors.Join(s.Defragment(t.Context()), s.Restore(saveSnapshot(t, s, t.TempDir()))); err != nil {
				t.Fatal(err)
			}
		} else {
			shut(t, s)
			r.Store = openBolt(t, path)
		}
		for range 50 {
			checkCount(t, r.Store, random)
		}
	}
	shut(t, r)
}

// Whoever is told of a revision may count it.
func TestARevisionIsCountedOnceItIsSeen(t *testing.T) {
	var s *store.Store
	var counts []int64
	s, err := store.Open(store.Config{Backend: newBackend(), Events: func(int64, []store.Write) {
		resp, err := s.Range(t.Context(), &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true})
		if err != nil {
			t.Errorf("Range() = %v", err)
		}
		counts = append(counts, resp.GetCount())
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, Store: s}
	defer shut(t, r)
	r.put("a", "1")
	r.put("b", "1")
	r.must(del("a", ""))
	if want := []int64{1, 2, 1}; !slices.Equal(counts, want) {
		t.Errorf("counts are %d, want %d", counts, want)
	}
}

// A count that is taken back reads the history, which a compaction forgets meanwhile.
func TestACompactionThatPassesACountIsSeen(t *testing.T) {
	r := newReplica(t)
	for i := range 2 * countKeys {
		r.put(countKey(i), "v")
	}
	ctx := &asked{Context: t.Context(), do: func() { r.must(compact(r.Revision())) }}
	all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true, Revision: countKeys}
	if resp, err := r.Range(ctx, all); !errors.Is(err, rpctypes.ErrGRPCCompacted) {
		t.Errorf("Range() = %v, %v, want %v", resp, err, rpctypes.ErrGRPCCompacted)
	}
	if ctx.do != nil {
		t.Error("a count of thousands of versions does not ask whether it is still wanted")
	}
}
