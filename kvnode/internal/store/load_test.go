package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// What a start has read is all there, in order, when it returns: keys that were written in order,
// and in none, fewer and more than are handed over at once.
func TestAStartHasAllKeysInOrder(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1024, 1025, 20_000} {
		for _, keys := range [][]int{ascending(n), rand.New(rand.NewPCG(1, uint64(n))).Perm(n)} {
			disk := storetest.NewDisk()
			r := &replica{t: t, Store: openStore(t, disk.Open())}
			for _, i := range keys {
				r.put(fmt.Sprintf("%06d", i), "v")
			}
			checkpoint(t, r.Store)
			shut(t, r.Store)
			s := openStore(t, disk.Open())
			resp, err := s.Range(t.Context(), &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
			if err != nil || len(resp.GetKvs()) != n || resp.GetCount() != int64(n) {
				t.Fatalf("%d keys, count %d, %v, want %d", len(resp.GetKvs()), resp.GetCount(), err, n)
			}
			for i, kv := range resp.GetKvs() {
				if got, want := string(kv.GetKey()), fmt.Sprintf("%06d", i); got != want {
					t.Fatalf("key %d is %s, want %s", i, got, want)
				}
			}
			shut(t, s)
		}
	}
}

func ascending(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}
