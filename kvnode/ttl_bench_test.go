package kvnode

import (
	"errors"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// BenchmarkRenewTTL renews 10,000 TTL leases under a valid leader lease.
func BenchmarkRenewTTL(b *testing.B) {
	const leases = 10_000
	n := startAlone(b)
	for id := range int64(leases) {
		r, err := n.Propose(b.Context(), &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id + 1, TTL: 3600}})
		if err = errors.Join(err, r.Err); err != nil {
			b.Fatal(err)
		}
	}
	var next atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := n.RenewTTL(b.Context(), next.Add(1)%leases+1); err != nil {
				b.Error(err)
			}
		}
	})
}
