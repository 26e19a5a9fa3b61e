package etcdapi

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// requestOf makes a KV request of kind from bytes as they come from the network.
func requestOf(kind byte, data []byte) (req any, ok bool) {
	var m proto.Message
	switch kind % 5 {
	case 0:
		m = &pb.RangeRequest{}
	case 1:
		m = &pb.PutRequest{}
	case 2:
		m = &pb.DeleteRangeRequest{}
	case 3:
		m = &pb.TxnRequest{}
	default:
		m = &pb.CompactionRequest{}
	}
	return m, proto.Unmarshal(data, m) == nil
}

// FuzzRequestsNeverPanicAndMembersAgree: whatever bytes a client sends, the
// request is answered or refused without a panic, and two members that apply it
// end up equal.
func FuzzRequestsNeverPanicAndMembersAgree(f *testing.F) {
	for _, seed := range []struct {
		kind byte
		m    proto.Message
	}{
		{0, &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}, Limit: 1, SortOrder: 2, SortTarget: 4}},
		{0, &pb.RangeRequest{Key: []byte("a"), Revision: 2, KeysOnly: true, MaxModRevision: 3}},
		{1, &pb.PutRequest{Key: []byte("a"), Value: []byte("v"), PrevKv: true}},
		{1, &pb.PutRequest{Key: []byte("a"), IgnoreValue: true, IgnoreLease: true}},
		{2, &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte("c"), PrevKv: true}},
		{3, &pb.TxnRequest{Success: ops(opPut("a"), opGet("a"), opTxn(ops(opDel("b", "")), nil)), Failure: ops(opDel("a", ""))}},
		{3, &pb.TxnRequest{Success: ops(opTxn(ops(opPut("a")), nil), opTxn(ops(opDel("a", "")), nil))}},
		{3, &pb.TxnRequest{Success: ops(opDel("a", "\x00"), opPut("b"))}},
		{3, &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("a"), RangeEnd: []byte{0}, Target: 9, Result: 9}}, Success: ops(&pb.RequestOp{})}},
		{4, &pb.CompactionRequest{Revision: 3, Physical: true}},
	} {
		data, err := proto.Marshal(seed.m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed.kind, data)
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		var hashes [2]uint32
		for i := range hashes {
			req, ok := requestOf(kind, data)
			if !ok {
				return
			}
			n := newFakeNodeOn(t, storetest.NewDisk().Open())
			s := &kvServer{API: New(n, Config{})}
			for _, key := range []string{"a", "b", "c", "a"} {
				if _, err := s.Put(t.Context(), &pb.PutRequest{Key: []byte(key), Value: []byte("v")}); err != nil {
					t.Fatal(err)
				}
			}
			serve(t, s, req)
			h, err := n.store.HashKV(0)
			if err != nil {
				t.Fatal(err)
			}
			hashes[i] = h.Hash
		}
		if hashes[0] != hashes[1] {
			t.Errorf("members have hashes %v after the same request", hashes)
		}
	})
}

// serve gives req to the handler and checks that it gives an answer or an error.
func serve(t *testing.T, s *kvServer, req any) {
	t.Helper()
	var resp response
	var err error
	switch r := req.(type) {
	case *pb.RangeRequest:
		resp, err = s.Range(t.Context(), r)
	case *pb.PutRequest:
		resp, err = s.Put(t.Context(), r)
	case *pb.DeleteRangeRequest:
		resp, err = s.DeleteRange(t.Context(), r)
	case *pb.TxnRequest:
		resp, err = s.Txn(t.Context(), r)
	case *pb.CompactionRequest:
		resp, err = s.Compact(t.Context(), r)
	}
	if err == nil && resp.GetHeader().GetClusterId() != testCluster {
		t.Errorf("response to %v has header %v", req, resp.GetHeader())
	}
	if err == nil {
		if _, err := proto.Marshal(resp); err != nil {
			t.Errorf("response to %v cannot be sent: %v", req, err)
		}
	}
}
