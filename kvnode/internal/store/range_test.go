package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
)

const countKeys = 3000

func countKey(i int) string { return fmt.Sprintf("%04d", i) }

// churn writes, deletes or compacts at random.
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
		// This transaction fails half-way and is rolled back.
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

// checkCount compares the counts of a whole range, of a page and of a count-only request with the
// number of keys.
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

// Counts from the index equal a scan, at the newest and at older revisions, during writes and
// compactions, and after restarts and restores.
func TestCountsAreThoseOfALook(t *testing.T) {
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	random := rand.New(rand.NewPCG(1, 1))
	rounds, writes := 6, 500
	if testing.Short() {
		rounds, writes = 2, 200
	}
	for round := range rounds {
		s := r.Store
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for i := range uint64(2) {
			own := rand.New(rand.NewPCG(uint64(round), i))
			readUntil(&wg, stop, 1, func() { checkCount(t, s, own) })
		}
		for i := range writes {
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

// A revision can be counted as soon as its events are passed on.
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

// A count at an older revision reads the history. It notices a compaction that drops a part of it
// meanwhile.
func TestACompactionThatPassesACountIsSeen(t *testing.T) {
	r := newReplica(t)
	for i := range 2 * countKeys {
		r.put(countKey(i), "v")
	}
	ctx := &overtaking{Context: t.Context(), by: r, times: 1}
	all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true, Revision: countKeys}
	if resp, err := r.Range(ctx, all); !errors.Is(err, rpctypes.ErrGRPCCompacted) {
		t.Errorf("Range() = %v, %v, want %v", resp, err, rpctypes.ErrGRPCCompacted)
	}
	if ctx.asked == 0 {
		t.Error("a count of thousands of versions does not check its context")
	}
}

// Ranges return all keys in order, for spans around the size of a chunk and for keys of all
// lengths.
func TestRangesOverManyChunks(t *testing.T) {
	r := newReplica(t)
	const n = 1100
	key := func(i int) string { return fmt.Sprintf("%04d", i) + strings.Repeat("k", i%130) }
	for i := range n {
		r.put(key(i), fmt.Sprint(i))
	}
	for _, span := range []struct{ from, to int }{{0, n}, {0, 1}, {0, 31}, {0, 32}, {0, 33}, {5, 293}, {5, 292}, {5, 294}, {1, 1099}, {700, 700}} {
		end := "\x00"
		if span.to < n {
			end = key(span.to)
		}
		resp, err := r.Range(t.Context(), &pb.RangeRequest{Key: []byte(key(span.from)), RangeEnd: []byte(end)})
		if err != nil || len(resp.GetKvs()) != span.to-span.from {
			t.Fatalf("Range(%d to %d) = %d keys, %v", span.from, span.to, len(resp.GetKvs()), err)
		}
		for i, kv := range resp.GetKvs() {
			if got, want := string(kv.GetKey()), key(span.from+i); got != want || string(kv.GetValue()) != fmt.Sprint(span.from+i) {
				t.Fatalf("Range(%d to %d)[%d] = %s, want %s", span.from, span.to, i, got, want)
			}
		}
	}
	for i := range n {
		if kv, _ := r.Get([]byte(key(i))); string(kv.GetValue()) != fmt.Sprint(i) {
			t.Fatalf("Get(%s) = %v", key(i), kv)
		}
	}
}

// overtaking is the context of a read that a compaction overtakes at each of the first scans.
type overtaking struct {
	context.Context
	by    *replica
	times int
	asked int
}

func (c *overtaking) Err() error {
	if c.asked++; c.asked <= c.times {
		c.by.put("a", "1")
		c.by.must(compact(c.by.Revision()))
	}
	return nil
}

// A read of the newest revision that a compaction overtakes is retried, up to 16 times. A read of
// an older revision fails at once, because that revision is gone.
func TestReadsThatACompactionOvertakes(t *testing.T) {
	all := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}}
	for _, c := range []struct {
		name  string
		times int
		read  func(context.Context, *replica) error
		want  error
		asked int
	}{
		{"a range, once", 1, newest(all), nil, 2},
		{"a range, as often as it may be", 15, newest(all), nil, 16},
		{"a range, for ever", 100, newest(all), rpctypes.ErrGRPCCompacted, 16},
		{"a range of a revision", 1, func(ctx context.Context, r *replica) error {
			_, err := r.Range(ctx, &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}, Revision: r.Revision()})
			return err
		}, rpctypes.ErrGRPCCompacted, 1},
		{"a transaction, once", 1, func(ctx context.Context, r *replica) error {
			_, err := r.Store.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{opRange("a", "\x00")}})
			return err
		}, nil, 2},
	} {
		r := newReplica(t)
		r.put("a", "0")
		ctx := &overtaking{Context: t.Context(), by: r, times: c.times}
		if err := c.read(ctx, r); !errors.Is(err, c.want) || ctx.asked != c.asked {
			t.Errorf("%s = %v after %d tries, want %v after %d", c.name, err, ctx.asked, c.want, c.asked)
		}
	}
}

func newest(req *pb.RangeRequest) func(context.Context, *replica) error {
	return func(ctx context.Context, r *replica) error {
		resp, err := r.Range(ctx, req)
		if err == nil && (len(resp.GetKvs()) != 1 || resp.GetHeader().GetRevision() != r.Revision()) {
			return fmt.Errorf("the response is %v, want one key as of revision %d", resp, r.Revision())
		}
		return err
	}
}
