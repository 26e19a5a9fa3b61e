package etcdapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// etcd's own client works, and every reply has a complete header.
func TestEtcdClientPutsGetsDeletesAndCompacts(t *testing.T) {
	s := startServer(t, Config{})
	c := s.client(t)
	ctx := t.Context()

	put, err := c.Put(ctx, "k", "1", clientv3.WithPrevKV())
	if err != nil || put.PrevKv != nil {
		t.Fatalf("first Put = %v, %v", put, err)
	}
	wantHeader(t, "Put", put.Header, 2)
	if put, err = c.Put(ctx, "k", "2", clientv3.WithPrevKV()); err != nil || string(put.PrevKv.GetValue()) != "1" {
		t.Fatalf("second Put = %v, %v; want the value before", put, err)
	}

	getting(t, c)

	txn, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Version("k"), "=", 2)).
		Then(clientv3.OpPut("t", "x"), clientv3.OpGet("t")).Commit()
	if err != nil || !txn.Succeeded || string(txn.Responses[1].GetResponseRange().GetKvs()[0].GetValue()) != "x" {
		t.Fatalf("Txn = %v, %v", txn, err)
	}
	wantHeader(t, "Txn", txn.Header, 4)

	del, err := c.Delete(ctx, "k")
	if err != nil || del.Deleted != 1 {
		t.Fatalf("Delete = %v, %v", del, err)
	}
	wantHeader(t, "Delete", del.Header, 5)

	compact, err := c.Compact(ctx, 4, clientv3.WithCompactPhysical())
	if err != nil {
		t.Fatal(err)
	}
	wantHeader(t, "Compact", compact.Header, 5)
	if _, err := c.Get(ctx, "k", clientv3.WithRev(3)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("Get of a compacted revision = %v, want %v", err, rpctypes.ErrCompacted)
	}
}

// getting reads k, which was put at revisions 2 and 3, and a key that does not exist.
func getting(t *testing.T, c *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	get, err := c.Get(ctx, "k")
	if err != nil || get.Count != 1 || string(get.Kvs[0].GetValue()) != "2" || get.Kvs[0].GetVersion() != 2 {
		t.Fatalf("Get = %v, %v", get, err)
	}
	wantHeader(t, "Get", get.Header, 3)
	if get, err = c.Get(ctx, "k", clientv3.WithRev(2)); err != nil || string(get.Kvs[0].GetValue()) != "1" {
		t.Fatalf("Get as of revision 2 = %v, %v", get, err)
	}
	if get, err = c.Get(ctx, "none"); err != nil || get.Count != 0 || len(get.Kvs) != 0 {
		t.Fatalf("Get of nothing = %v, %v", get, err)
	}
	wantHeader(t, "Get of nothing", get.Header, 3)
}

// The fast path for one key returns the same as the slow path.
func TestGetOfOneKeyAgreesWithRange(t *testing.T) {
	s := startServer(t, Config{})
	s.put(t, "k", "v")
	for _, key := range []string{"k", "none"} {
		// A limit takes the short cut, a minimal revision of 1 the long way.
		short, err := s.kv.Range(t.Context(), &pb.RangeRequest{Key: []byte(key), Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		long, err := s.kv.Range(t.Context(), &pb.RangeRequest{Key: []byte(key), MinModRevision: 1})
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(short, long) {
			t.Errorf("Range(%q) = %v by the short cut, %v by the long way", key, short, long)
		}
	}
}

// Only plain gets take the fast path.
func TestFastPathIsForPlainGets(t *testing.T) {
	key := []byte("k")
	for _, c := range []struct {
		req  *pb.RangeRequest
		want bool
	}{
		{&pb.RangeRequest{Key: key}, true},
		{&pb.RangeRequest{Key: key, Limit: 3, SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_VALUE}, true},
		{&pb.RangeRequest{Key: key, RangeEnd: []byte{0}}, false},
		{&pb.RangeRequest{Key: key, Revision: 1}, false},
		{&pb.RangeRequest{Key: key, KeysOnly: true}, false},
		{&pb.RangeRequest{Key: key, CountOnly: true}, false},
		{&pb.RangeRequest{Key: key, MinModRevision: 1}, false},
		{&pb.RangeRequest{Key: key, MaxModRevision: 1}, false},
		{&pb.RangeRequest{Key: key, MinCreateRevision: 1}, false},
		{&pb.RangeRequest{Key: key, MaxCreateRevision: 1}, false},
	} {
		if got := isGet(c.req); got != c.want {
			t.Errorf("isGet(%v) = %v, want %v", c.req, got, c.want)
		}
	}
}

// A transaction that only reads leaves no entry in the log at any depth, and reads at one
// revision.
func TestTransactionsThatOnlyReadAreReads(t *testing.T) {
	s := startServer(t, Config{})
	s.put(t, "k", "v")
	before := s.proposals()
	resp, err := s.kv.Txn(t.Context(), &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("k"), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("v")}}},
		Success: ops(opGet("k"), opTxn(ops(opGet("k")), nil)),
		Failure: ops(opGet("none")),
	})
	if err != nil || !resp.GetSucceeded() || string(resp.GetResponses()[0].GetResponseRange().GetKvs()[0].GetValue()) != "v" {
		t.Fatalf("Txn = %v, %v", resp, err)
	}
	if got := string(resp.GetResponses()[1].GetResponseTxn().GetResponses()[0].GetResponseRange().GetKvs()[0].GetValue()); got != "v" {
		t.Errorf("inner transaction read %q, want v", got)
	}
	wantHeader(t, "Txn", resp.GetHeader(), 2)
	if got := s.proposals() - before; got != 0 {
		t.Errorf("a transaction that only reads was proposed %d times", got)
	}
	if got := s.lastMode(t); got != kvnode.ReadAuto {
		t.Errorf("read mode = %v, want auto", got)
	}
}

// A transaction is serializable only if all its reads are. One that only compares is not.
func TestOnlySerializableTransactionsAreLocal(t *testing.T) {
	local := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k"), Serializable: true}}}
	for _, c := range []struct {
		name string
		req  *pb.TxnRequest
		want kvnode.ReadMode
	}{
		{"all serializable", &pb.TxnRequest{Success: ops(local), Failure: ops(opTxn(ops(local), nil))}, kvnode.ReadSerializable},
		{"one of them not", &pb.TxnRequest{Success: ops(local), Failure: ops(opGet("k"))}, kvnode.ReadAuto},
		{"an inner one not", &pb.TxnRequest{Success: ops(local, opTxn(ops(opGet("k")), nil))}, kvnode.ReadAuto},
		{"compares only", &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k")}}}, kvnode.ReadAuto},
	} {
		s := startServer(t, Config{})
		if _, err := s.kv.Txn(t.Context(), c.req); err != nil {
			t.Fatal(err)
		}
		if got := s.lastMode(t); got != c.want {
			t.Errorf("%s: read mode = %v, want %v", c.name, got, c.want)
		}
	}
}

// The merged chunks of a stream are the response of Range. No chunk is large, and only the last
// has the header.
func TestRangeStreamMergesIntoRange(t *testing.T) {
	s := startServer(t, Config{})
	for i := range 20 {
		s.put(t, fmt.Sprintf("k%02d", i), string(bytes.Repeat([]byte("v"), 50<<10)))
	}
	s.put(t, "large", string(bytes.Repeat([]byte("v"), 2*chunkBytes)))
	for _, r := range []*pb.RangeRequest{
		{Key: []byte("k"), RangeEnd: []byte("z")},
		{Key: []byte("k"), RangeEnd: []byte("z"), Limit: 7},
		{Key: []byte("k"), RangeEnd: []byte("z"), CountOnly: true},
		{Key: []byte("k"), RangeEnd: []byte("z"), KeysOnly: true, Revision: 5},
		{Key: []byte("large")},
		{Key: []byte("none")},
	} {
		want, err := s.kv.Range(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		got, chunks := s.stream(t, r)
		if !proto.Equal(got, want) {
			t.Errorf("RangeStream(%v) merges into %d keys, count %d, more %v, header %v; want %d, %d, %v, %v", r,
				len(got.GetKvs()), got.GetCount(), got.GetMore(), got.GetHeader(), len(want.GetKvs()), want.GetCount(), want.GetMore(), want.GetHeader())
		}
		if least := proto.Size(want) / (chunkBytes + 60<<10); chunks < max(least, 1) {
			t.Errorf("RangeStream(%v) of %d bytes came in %d chunks", r, proto.Size(want), chunks)
		}
	}
	if _, err := s.recv(t.Context(), &pb.RangeRequest{Key: []byte("k"), Revision: 1 << 40}); err == nil {
		t.Error("RangeStream of a future revision = nil error")
	}
}

func (s *server) recv(ctx context.Context, r *pb.RangeRequest) (*pb.RangeStreamResponse, error) {
	stream, err := s.kv.RangeStream(ctx, r)
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// stream merges the chunks of r.
func (s *server) stream(t *testing.T, r *pb.RangeRequest) (merged *pb.RangeResponse, chunks int) {
	t.Helper()
	stream, err := s.kv.RangeStream(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	merged = &pb.RangeResponse{}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return merged, chunks
		}
		if err != nil {
			t.Fatal(err)
		}
		if merged.GetHeader() != nil {
			t.Error("a chunk came after the one with the header")
		}
		if n := proto.Size(m); n > chunkBytes+1024 && len(m.GetRangeResponse().GetKvs()) > 1 {
			t.Errorf("chunk of %d bytes, want at most %d", n, chunkBytes)
		}
		chunks++
		proto.Merge(merged, m.GetRangeResponse())
	}
}

func TestChunkHoldsAtLeastOneKey(t *testing.T) {
	kv := func(n int) *mvccpb.KeyValue { return &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, n)} }
	for _, c := range []struct {
		name string
		kvs  []*mvccpb.KeyValue
		want int
	}{
		{"nothing", nil, 0},
		{"one that is too large", []*mvccpb.KeyValue{kv(chunkBytes)}, 1},
		{"a small one before it", []*mvccpb.KeyValue{kv(1), kv(chunkBytes)}, 1},
		{"two halves", []*mvccpb.KeyValue{kv(chunkBytes/2 - 16), kv(chunkBytes/2 - 16), kv(64)}, 2},
	} {
		if got := chunkLen(c.kvs); got != c.want {
			t.Errorf("chunk(%s) = %d, want %d", c.name, got, c.want)
		}
	}
}

// As in etcd, the headers inside a transaction's response have only the revision, and the outer
// one is complete.
func TestHeadersWithinATxnHaveTheRevision(t *testing.T) {
	s := startServer(t, Config{})
	first := s.put(t, "k", "v").GetHeader().GetRevision()
	resp, err := s.kv.Txn(t.Context(), &pb.TxnRequest{
		Success: ops(opGet("k"), opPut("a"), opPut("b"), opDel("k", ""), opTxn(ops(opPut("c")), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	wantHeader(t, "the transaction", resp.GetHeader(), first+1)
	all := resp.GetResponses()
	for i, c := range []struct {
		got      *pb.ResponseHeader
		revision int64
	}{
		{all[0].GetResponseRange().GetHeader(), first},
		{all[1].GetResponsePut().GetHeader(), first + 1},
		{all[2].GetResponsePut().GetHeader(), first + 1},
		{all[3].GetResponseDeleteRange().GetHeader(), first + 1},
		{all[4].GetResponseTxn().GetHeader(), 0},
		{all[4].GetResponseTxn().GetResponses()[0].GetResponsePut().GetHeader(), first + 1},
	} {
		if want := (&pb.ResponseHeader{Revision: c.revision}); !proto.Equal(c.got, want) {
			t.Errorf("header of answer %d = %v, want %v", i, c.got, want)
		}
	}
}

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
