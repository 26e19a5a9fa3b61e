package fastwire

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// The messages of a transaction are counted before they are decoded, however deep they are.
func TestMessagesOfATransaction(t *testing.T) {
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}}
	txn := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("a")}, {}},
		Success: []*pb.RequestOp{get, get, {}},
		Failure: []*pb.RequestOp{get},
	}
	count := func(txn *pb.TxnRequest) int {
		data, err := proto.Marshal(txn)
		if err != nil {
			t.Fatal(err)
		}
		return TxnMessages(data)
	}
	if n := count(txn); n != 9 {
		t.Errorf("%d messages, want 2 compares, 4 operations and 3 gets", n)
	}
	for depth := 1; depth <= 2*maxTxnDepth; depth++ {
		txn = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn}}}}
		if n := count(txn); n < 9+2*min(depth, maxTxnDepth) || depth <= maxTxnDepth && n != 9+2*depth {
			t.Errorf("%d messages at depth %d, want %d", n, depth, 9+2*depth)
		}
	}
	if n := TxnMessages([]byte{0x0a, 0, 0x0a, 0, 0x0a}); n != 2 {
		t.Errorf("%d messages before the bytes end, want 2", n)
	}
}
