package store

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Store.Txn carries out what writes nothing, in any branch and at any depth.
func TestTxnWrites(t *testing.T) {
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{}}}
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{}}}
	del := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{}}}
	nested := func(ops ...*pb.RequestOp) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Failure: ops}}}
	}
	for _, c := range []struct {
		name string
		op   *pb.RequestOp
		want bool
	}{
		{"a range", get, false},
		{"a put", put, true},
		{"a deletion", del, true},
		{"nothing that is known", &pb.RequestOp{}, true},
		{"a nested range", nested(get), false},
		{"a nested put", nested(get, put), true},
		{"a put two levels down", nested(nested(put)), true},
	} {
		for _, txn := range []*pb.TxnRequest{{Success: []*pb.RequestOp{get, c.op}}, {Failure: []*pb.RequestOp{c.op}}} {
			if got := txnWrites(txn); got != c.want {
				t.Errorf("%s: txnWrites() = %v", c.name, got)
			}
		}
	}
}
