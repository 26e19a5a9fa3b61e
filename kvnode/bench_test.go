package kvnode

import (
	"fmt"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/leaderlease"
)

const benchKeys = 1_000_000

func benchKey(i int) []byte { return fmt.Appendf(nil, "/registry/pods/%08d", i) }

// benchNode is a leader of a cluster of one with benchKeys keys.
func benchNode(b *testing.B) *Node {
	b.Helper()
	n := startAlone(b)
	const perTxn = 1000
	for first := 0; first < benchKeys; first += perTxn {
		txn := &pb.TxnRequest{}
		for i := first; i < first+perTxn; i++ {
			put := &pb.PutRequest{Key: benchKey(i), Value: fmt.Appendf(nil, "value of %d", i)}
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
		}
		if r, err := n.Propose(b.Context(), &pb.InternalRaftRequest{Txn: txn}); err != nil || r.Err != nil {
			b.Fatal(err, r.Err)
		}
	}
	return n
}

// BenchmarkRead measures the whole linearizable read in process, beside a get
// of a plain map with the same keys in the same order. A batch has arrived as a
// whole, so one lease check serves it.
func BenchmarkRead(b *testing.B) {
	n := benchNode(b)
	keys := make([][]byte, 1<<20)
	for i := range keys {
		keys[i] = benchKey(rand.IntN(benchKeys))
	}
	plain := make(map[string]*mvccpb.KeyValue, benchKeys)
	for i := range benchKeys {
		kv, _ := n.Store().Get(benchKey(i))
		plain[string(kv.GetKey())] = kv.Message()
	}
	b.Run("of=map", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if plain[string(keys[i&(len(keys)-1)])] == nil {
				b.Fatal("no such key")
			}
		}
	})
	for _, batch := range []int{1, 16} {
		b.Run(fmt.Sprintf("of=store/batch=%d", batch), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%batch == 0 {
					if index, s := n.Lease().TryRead(); s != leaderlease.StatusValid || n.Store().Applied() < index {
						b.Fatal(s)
					}
				}
				if kv, _ := n.Store().Get(keys[i&(len(keys)-1)]); kv == nil {
					b.Fatal("no such key")
				}
			}
		})
	}
	b.Run("of=store/call=Read", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if r, err := n.Read(b.Context(), ReadLease); err != nil || r.Path != "lease" {
				b.Fatal(r, err)
			}
			if kv, _ := n.Store().Get(keys[i&(len(keys)-1)]); kv == nil {
				b.Fatal("no such key")
			}
		}
	})
}

// BenchmarkPropose measures writes that wait for this member's disk.
func BenchmarkPropose(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			n := startAlone(b)
			b.SetParallelism(clients)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				value := make([]byte, 256)
				for p.Next() {
					put := &pb.PutRequest{Key: benchKey(rand.IntN(1000)), Value: value}
					if _, err := n.Propose(b.Context(), &pb.InternalRaftRequest{Put: put}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
