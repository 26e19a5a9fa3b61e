package store_test

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// What is counted is what etcd counts: operations that were carried out, and as
// transactions what has two of them or more.
func TestOpsAreCounted(t *testing.T) {
	r := newReplica(t)
	put := &pb.PutRequest{Key: []byte("k"), Value: []byte("value"), Lease: 7}
	del := &pb.DeleteRangeRequest{Key: []byte("k")}
	get := &pb.RangeRequest{Key: []byte("k")}
	for _, req := range []*pb.InternalRaftRequest{
		{LeaseGrant: &pb.LeaseGrantRequest{ID: 7, TTL: 60}},
		{Put: put},
		{Put: &pb.PutRequest{Key: []byte("k"), IgnoreValue: true, Lease: 9}}, // refused
		{DeleteRange: del},
		{Txn: &pb.TxnRequest{Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestPut{RequestPut: put}}, {Request: &pb.RequestOp_RequestRange{RequestRange: get}},
		}}},
		{Txn: &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: get}}}}},
		{Range: get},
		{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 7}},
	} {
		_, _ = r.request(req)
	}
	if got, want := r.Ops(), (store.Ops{Ranges: 3, Puts: 2, Deletes: 2, Txns: 1, PutBytes: 12}); got != want {
		t.Errorf("Ops() = %+v, want %+v", got, want)
	}
}
