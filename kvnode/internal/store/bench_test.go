package store_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/tidwall/btree"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

func benchKeys(n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "bench/key/%012d", i)
	}
	return keys
}

// benchOrder shuffles keys, so that caches work as under real load. All arms use the same order.
func benchOrder(keys [][]byte) [][]byte {
	order := append([][]byte(nil), keys...)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

func putCommand(b *testing.B, key, value []byte) []byte {
	b.Helper()
	c := store.Command{ID: 1, Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: key, Value: value}}}
	data, err := c.Encode()
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func benchStore(b *testing.B, keys [][]byte) (s *store.Store, next uint64) {
	b.Helper()
	s, err := store.Open(store.Config{Backend: storetest.NewDisk().Open()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { shut(b, s) })
	value := make([]byte, 64)
	for _, key := range keys {
		next++
		if r := s.Apply(next, 1, putCommand(b, key, value)); r.Err != nil {
			b.Fatal(r.Err)
		}
	}
	return s, next
}

// BenchmarkDecode measures the decoding of a put, the first step for each entry on each member.
func BenchmarkDecode(b *testing.B) {
	data := putCommand(b, []byte("bench/key/000000000001"), make([]byte, 256))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := store.DecodeCommand(data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGet compares a point read of the store with other structures that hold pointers to
// similar values.
func BenchmarkGet(b *testing.B) {
	const n = 1_000_000
	keys := benchKeys(n)
	order := benchOrder(keys)
	kv := func(key []byte) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: key, Value: make([]byte, 64), ModRevision: 1}
	}

	b.Run(fmt.Sprintf("impl=map/keys=%d", n), func(b *testing.B) {
		m := make(map[string]*mvccpb.KeyValue)
		for _, key := range keys {
			m[string(key)] = kv(key)
		}
		benchGet(b, order, func(key []byte) *mvccpb.KeyValue { return m[string(key)] })
	})
	b.Run(fmt.Sprintf("impl=store/keys=%d", n), func(b *testing.B) {
		s, _ := benchStore(b, keys)
		benchGet(b, order, func(key []byte) *store.Version {
			kv, _ := s.Get(key)
			return kv
		})
	})
	b.Run(fmt.Sprintf("impl=syncmap/keys=%d", n), func(b *testing.B) {
		var m sync.Map
		for _, key := range keys {
			m.Store(string(key), kv(key))
		}
		benchGet(b, order, func(key []byte) *mvccpb.KeyValue {
			v, _ := m.Load(string(key))
			kv, _ := v.(*mvccpb.KeyValue)
			return kv
		})
	})
	b.Run(fmt.Sprintf("impl=btree/keys=%d", n), func(b *testing.B) {
		m := btree.NewMap[string, *mvccpb.KeyValue](0)
		for _, key := range keys {
			m.Set(string(key), kv(key))
		}
		benchGet(b, order, func(key []byte) *mvccpb.KeyValue {
			kv, _ := m.Get(string(key))
			return kv
		})
	})
}

// benchGet reads a field of the result, because an unused pointer causes no cache miss.
func benchGet[V interface{ GetModRevision() int64 }](b *testing.B, order [][]byte, get func(key []byte) V) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if kv := get(order[i]); kv.GetModRevision() == 0 { // 0 for nil
			b.Fatalf("get(%s) = %v", order[i], kv)
		}
		if i++; i == len(order) {
			i = 0
		}
	}
}

// BenchmarkApply measures a put from the entry's data to the response.
func BenchmarkApply(b *testing.B) {
	for _, fresh := range []bool{false, true} {
		b.Run(fmt.Sprintf("op=put/new=%v", fresh), func(b *testing.B) {
			const n = 100_000
			keys := benchKeys(n)
			s, next := benchStore(b, keys)
			data := make([][]byte, n)
			for i, key := range benchOrder(keys) {
				data[i] = putCommand(b, key, make([]byte, 64))
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				one := data[i%n]
				if fresh {
					one = putCommand(b, fmt.Appendf(nil, "new/%x", i*7919), nil)
				}
				next++
				i++
				if r := s.Apply(next, 1, one); r.Err != nil {
					b.Fatal(r.Err)
				}
			}
		})
	}
}

// BenchmarkCheckpoint measures checkpoints of 10,000 puts, kvnode's default, in a database of
// 100,000 keys.
func BenchmarkCheckpoint(b *testing.B) {
	backend, err := boltdb.Open(filepath.Join(b.TempDir(), "db"))
	if err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(store.Config{Backend: backend})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { shut(b, s) })
	next := uint64(0)
	put := func(keys [][]byte) {
		for _, key := range keys {
			next++
			if r := s.Apply(next, 1, putCommand(b, key, make([]byte, 128))); r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
	save := func() {
		if _, err := s.SaveCheckpoint(nil); err != nil {
			b.Fatal(err)
		}
	}
	const each = 10_000
	keys := benchKeys(10 * each)
	put(keys)
	save()
	order := benchOrder(keys)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		put(order[i%10*each:][:each])
		b.StartTimer()
		save()
	}
}

// BenchmarkRange measures ranges in a store of a million keys, including counts and pages that need
// no scan.
func BenchmarkRange(b *testing.B) {
	const n = 1_000_000
	keys := benchKeys(n)
	s, _ := benchStore(b, keys)
	old := s.Revision() - 1000
	all := func(r *pb.RangeRequest) func(int) *pb.RangeRequest {
		r.Key, r.RangeEnd = []byte{0}, []byte{0}
		return func(int) *pb.RangeRequest { return r }
	}
	for _, arm := range []struct {
		name string
		next func(i int) *pb.RangeRequest
		want int64
	}{
		{"ask=keys/keys=10", func(i int) *pb.RangeRequest { return &pb.RangeRequest{Key: keys[i], RangeEnd: keys[i+10]} }, 10},
		{"ask=keys/keys=100", func(i int) *pb.RangeRequest { return &pb.RangeRequest{Key: keys[i], RangeEnd: keys[i+100]} }, 100},
		{"ask=page/keys=1", all(&pb.RangeRequest{Limit: 1}), n},
		{"ask=page/keys=500", all(&pb.RangeRequest{Limit: 500}), n},
		{"ask=page/keys=1/range=100", func(i int) *pb.RangeRequest {
			return &pb.RangeRequest{Key: keys[i], RangeEnd: keys[i+100], Limit: 1}
		}, 100},
		{"ask=count", all(&pb.RangeRequest{CountOnly: true}), n},
		{"ask=count/age=1000", all(&pb.RangeRequest{CountOnly: true, Revision: old}), n - 1000},
	} {
		b.Run(fmt.Sprintf("%s/of=%d", arm.name, n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				resp, err := s.Range(b.Context(), arm.next(i))
				if err != nil || resp.GetCount() != arm.want {
					b.Fatalf("Range() = %d keys, %v, want %d", resp.GetCount(), err, arm.want)
				}
				i = (i + 7919) % (n - 100)
			}
		})
	}
}

// BenchmarkHeap reports the heap per key of 22 bytes with a saved value of 256 bytes: live after a
// collection, and taken from the system.
func BenchmarkHeap(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			for b.Loop() {
				before := liveHeap()
				backend, err := boltdb.Open(filepath.Join(b.TempDir(), "db"))
				if err != nil {
					b.Fatal(err)
				}
				s, err := store.Open(store.Config{Backend: backend})
				if err != nil {
					b.Fatal(err)
				}
				for i := range n {
					put := putCommand(b, fmt.Appendf(nil, "bench/key/%012d", i), make([]byte, 256))
					if r := s.Apply(uint64(i+1), 1, put); r.Err != nil {
						b.Fatal(r.Err)
					}
					if i%10_000 == 9999 {
						checkpoint(b, s)
					}
				}
				after := liveHeap()
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "live-B/key")
				b.ReportMetric(float64(after.HeapSys-after.HeapReleased)/float64(n), "heap-B/key")
				shut(b, s)
			}
		})
	}
}

// liveHeap collects twice, because the first collection only moves pooled objects to the victim
// cache.
func liveHeap() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// BenchmarkLoad measures a start with a million keys that were written in order, or at random.
func BenchmarkLoad(b *testing.B) {
	for _, order := range []struct {
		name string
		keys func([][]byte) [][]byte
	}{
		{"ordered", func(keys [][]byte) [][]byte { return keys }},
		{"shuffled", benchOrder},
	} {
		b.Run(order.name, func(b *testing.B) {
			backend, err := boltdb.Open(filepath.Join(b.TempDir(), "db"))
			if err != nil {
				b.Fatal(err)
			}
			s, err := store.Open(store.Config{Backend: backend})
			if err != nil {
				b.Fatal(err)
			}
			for i, key := range order.keys(benchKeys(1_000_000)) {
				if r := s.Apply(uint64(i+1), 1, putCommand(b, key, make([]byte, 256))); r.Err != nil {
					b.Fatal(r.Err)
				}
				if i%100_000 == 99_999 {
					if _, err := s.SaveCheckpoint(nil); err != nil {
						b.Fatal(err)
					}
				}
			}
			s = nil
			b.ReportAllocs()
			for b.Loop() {
				if _, err := store.Open(store.Config{Backend: backend}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
