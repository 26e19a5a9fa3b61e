package requests

import (
	"bytes"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestDescribe(t *testing.T) {
	put := &pb.PutRequest{Key: []byte("k"), Value: []byte("secret"), Lease: 5}
	op := func(p *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
	}
	for _, tc := range []struct {
		request any
		want    string
	}{
		{&pb.RangeRequest{Key: []byte("a\x1b[2J\n"), RangeEnd: []byte{0}, Limit: 3}, `range key="a\x1b[2J\n" range_end="\x00" limit=3`},
		{&pb.RangeRequest{Key: bytes.Repeat([]byte("k"), 70)}, `range key="` + strings.Repeat("k", 64) + `"…(70 bytes)`},
		{put, `put key="k" lease=5 value_size=6`},
		{&pb.TxnRequest{
			Compare: []*pb.Compare{{}, {}}, Success: []*pb.RequestOp{op(put), op(put), op(put), op(put), op(put)},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}}},
		}, `txn compares=2 success=[put key="k" lease=5 value_size=6, put key="k" lease=5 value_size=6, put key="k" lease=5 value_size=6, put key="k" lease=5 value_size=6, 1 more] failure=[txn]`},
		{&pb.LeaseRevokeRequest{ID: -1}, "lease_revoke id=ffffffffffffffff"},
		{&pb.AuthUserAddRequest{Name: "n", Password: "secret"}, "AuthUserAddRequest"},
		{nil, "unknown"},
	} {
		if got := Describe(tc.request); got != tc.want {
			t.Errorf("Describe() = %s, want %s", got, tc.want)
		}
	}
}

// The description of a large request is short.
func TestDescriptionsAreBounded(t *testing.T) {
	key := bytes.Repeat([]byte{0xff}, 1<<20)
	var ops []*pb.RequestOp
	for range 1000 {
		ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key, RangeEnd: key}}})
	}
	if n := len(Describe(&pb.TxnRequest{Success: ops, Failure: ops})); n > 8<<10 {
		t.Errorf("Describe() has %d bytes, want 8 KiB at most", n)
	}
}
