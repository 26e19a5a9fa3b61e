package store_test

import (
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// As in etcd 3.7, the hash of no keys is not 0.
func TestHashOfNothing(t *testing.T) {
	const nothing = 1084519789 // CRC-32C of "key"
	r := history(t)
	if h, err := r.HashKV(-1); err != nil || h.Hash != nothing || h.HashRevision != -1 {
		t.Errorf("HashKV(-1) = %+v, %v, want the hash of nothing, %d", h, err, nothing)
	}
	if h, err := r.HashKV(1); err != nil || h.Hash != nothing || h.HashRevision != 1 {
		t.Errorf("HashKV(1) = %+v, %v, want the hash of nothing, %d", h, err, nothing)
	}
	if h, err := r.HashKV(0); err != nil || h.Hash == nothing || h.HashRevision != h.Revision {
		t.Errorf("HashKV(0) = %+v, %v, want the newest and something", h, err)
	}
	if _, err := r.HashKV(r.Revision() + 1); !errors.Is(err, rpctypes.ErrGRPCFutureRev) {
		t.Errorf("HashKV(the future) = %v, want %v", err, rpctypes.ErrGRPCFutureRev)
	}
}

func TestHashCoversEveryField(t *testing.T) {
	seen := map[uint32]string{}
	for name, reqs := range map[string][]*pb.InternalRaftRequest{
		"base":          {put("a", "1")},
		"value":         {put("a", "2")},
		"key":           {put("b", "1")},
		"border":        {put("a1", "")},
		"version":       {put("a", "1"), put("a", "1"), compact(3)},
		"create":        {put("x", "1"), del("x", ""), put("a", "1"), compact(4)},
		"mod":           {put("a", "0"), put("z", "1"), del("z", ""), put("a", "1"), compact(5)},
		"tombstone":     {put("a", "1"), del("a", "")},
		"sub":           {txn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("a", "1"), opPut("b", "1")}})},
		"sub reordered": {txn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("b", "1"), opPut("a", "1")}})},
	} {
		r := newReplica(t)
		for _, req := range reqs {
			r.must(req)
		}
		h := hashOf(t, r.Store).Hash
		if other, ok := seen[h]; ok {
			t.Errorf("HashKV is %#x for both %s and %s", h, name, other)
		}
		seen[h] = name
	}
}

func TestHashErrors(t *testing.T) {
	r := history(t)
	r.must(compact(4))
	for _, c := range []struct {
		rev  int64
		want string
	}{
		{3, "etcdserver: mvcc: required revision has been compacted"},
		{4, ""},
		{6, ""},
		{0, ""},
		{7, "etcdserver: mvcc: required revision is a future revision"},
	} {
		h, err := r.HashKV(c.rev)
		if desc := errText(err); desc != c.want || err == nil && (h.Revision != 6 || h.CompactRevision != 4) {
			t.Errorf("HashKV(%d) = %+v, %q, want %q", c.rev, h, desc, c.want)
		}
	}
}
