package store_test

import (
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestRangesOverManyChunks has keys of all lengths, around those that chains and
// chunks treat differently.
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
