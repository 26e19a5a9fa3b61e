package etcdapi

import (
	"context"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

func opPut(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
}

func opDel(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)},
	}}
}

func opGet(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
}

func opTxn(then, otherwise []*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: then, Failure: otherwise}}}
}

func ops(list ...*pb.RequestOp) []*pb.RequestOp { return list }

// gets returns n reads.
func gets(n int) []*pb.RequestOp {
	list := make([]*pb.RequestOp, n)
	for i := range list {
		list[i] = opGet("k")
	}
	return list
}

// nested returns a transaction of the given depth.
func nested(depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{Success: gets(1)}
	for range depth - 1 {
		r = &pb.TxnRequest{Success: ops(&pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}})}
	}
	return r
}

// What is wrong is refused in etcd's words, before anything is proposed.
func TestInvalidRequestsGetEtcdErrors(t *testing.T) {
	key := []byte("k")
	for _, c := range []struct {
		name string
		req  any
		want error
	}{
		{"range without key", &pb.RangeRequest{}, rpctypes.ErrGRPCEmptyKey},
		{"range in an order that there is not", &pb.RangeRequest{Key: key, SortOrder: 3}, rpctypes.ErrGRPCInvalidSortOption},
		{"range by a target that there is not", &pb.RangeRequest{Key: key, SortTarget: 5}, rpctypes.ErrGRPCInvalidSortOption},
		{"range by a negative target", &pb.RangeRequest{Key: key, SortTarget: -1}, rpctypes.ErrGRPCInvalidSortOption},
		{"range by the last target in the last order", &pb.RangeRequest{Key: key, SortOrder: 2, SortTarget: 4}, nil},
		{"range of a future revision", &pb.RangeRequest{Key: key, Revision: 1 << 40}, rpctypes.ErrGRPCFutureRev},
		{"put without key", &pb.PutRequest{Value: key}, rpctypes.ErrGRPCEmptyKey},
		{"put that ignores a value", &pb.PutRequest{Key: key, Value: key, IgnoreValue: true}, rpctypes.ErrGRPCValueProvided},
		{"put that ignores a lease", &pb.PutRequest{Key: key, Lease: 1, IgnoreLease: true}, rpctypes.ErrGRPCLeaseProvided},
		{"put that keeps a value that is not there", &pb.PutRequest{Key: []byte("none"), IgnoreValue: true}, rpctypes.ErrGRPCKeyNotFound},
		{"put under a lease that is not there", &pb.PutRequest{Key: key, Lease: 1}, rpctypes.ErrGRPCLeaseNotFound},
		{"put of a whole request's size", &pb.PutRequest{Key: key, Value: make([]byte, testRequestBytes)}, rpctypes.ErrGRPCRequestTooLarge},
		{"delete without key", &pb.DeleteRangeRequest{RangeEnd: key}, rpctypes.ErrGRPCEmptyKey},
		{"txn with as many operations as may be", &pb.TxnRequest{Success: gets(128), Failure: gets(128)}, nil},
		{"txn with one more", &pb.TxnRequest{Failure: gets(129)}, rpctypes.ErrGRPCTooManyOps},
		{"txn with too many compares", &pb.TxnRequest{Compare: make([]*pb.Compare, 129)}, rpctypes.ErrGRPCTooManyOps},
		{"txn that compares no key", &pb.TxnRequest{Compare: []*pb.Compare{{}}}, rpctypes.ErrGRPCEmptyKey},
		{"txn with an empty operation", &pb.TxnRequest{Success: ops(&pb.RequestOp{})}, rpctypes.ErrGRPCKeyNotFound},
		{"txn that puts no key", &pb.TxnRequest{Failure: ops(opPut(""))}, rpctypes.ErrGRPCEmptyKey},
		{"txn that deletes no key", &pb.TxnRequest{Success: ops(opDel("", ""))}, rpctypes.ErrGRPCEmptyKey},
		{"txn that reads no key", &pb.TxnRequest{Success: ops(opGet(""))}, rpctypes.ErrGRPCEmptyKey},
		{"inner txn has what the outer left", &pb.TxnRequest{Success: ops(opTxn(gets(127), nil))}, nil},
		{"inner txn has one more", &pb.TxnRequest{Success: ops(opTxn(gets(128), nil))}, rpctypes.ErrGRPCTooManyOps},
		{"txn nested as deep as may be", nested(128), nil},
		{"txn nested deeper", nested(129), rpctypes.ErrGRPCTooManyOps},
		{"txn puts a key twice", &pb.TxnRequest{Success: ops(opPut("k"), opPut("k"))}, rpctypes.ErrGRPCDuplicateKey},
		{"compaction of the future", &pb.CompactionRequest{Revision: 1 << 40}, rpctypes.ErrGRPCFutureRev},
		{"compaction of nothing", &pb.CompactionRequest{Revision: -1}, rpctypes.ErrGRPCCompacted},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t, Config{})
			s.put(t, "k", "v")
			before := s.store.Revision()
			err := s.call(t.Context(), c.req)
			wantStatus(t, c.name, err, c.want)
			if got := s.store.Revision(); c.want != nil && got != before {
				t.Errorf("revision after %s = %d, want %d", c.name, got, before)
			}
		})
	}
}

func (s *server) call(ctx context.Context, req any) (err error) {
	switch r := req.(type) {
	case *pb.RangeRequest:
		_, err = s.kv.Range(ctx, r)
	case *pb.PutRequest:
		_, err = s.kv.Put(ctx, r)
	case *pb.DeleteRangeRequest:
		_, err = s.kv.DeleteRange(ctx, r)
	case *pb.TxnRequest:
		_, err = s.kv.Txn(ctx, r)
	case *pb.CompactionRequest:
		_, err = s.kv.Compact(ctx, r)
	}
	return err
}

// What exceeds even the allowance never reaches the API.
func TestGRPCRejectsMessagesAboveItsLimit(t *testing.T) {
	s := startServer(t, Config{})
	huge := make([]byte, testRequestBytes+messageOverhead)
	_, err := s.kv.Put(t.Context(), &pb.PutRequest{Key: []byte("k"), Value: huge})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("Put of %d bytes = %v, want ResourceExhausted", len(huge), err)
	}
}

func TestRangeStreamRejectsWhatEtcdDoesNotStream(t *testing.T) {
	key := []byte("k")
	for _, c := range []struct {
		name string
		req  *pb.RangeRequest
		want error
	}{
		{"no key", &pb.RangeRequest{}, rpctypes.ErrGRPCEmptyKey},
		{"by key, ascending", &pb.RangeRequest{Key: key, SortOrder: pb.RangeRequest_ASCEND}, nil},
		{"by value, in no order", &pb.RangeRequest{Key: key, SortTarget: pb.RangeRequest_VALUE}, nil},
		{"by key, descending", &pb.RangeRequest{Key: key, SortOrder: pb.RangeRequest_DESCEND}, errStreamSort},
		{"by value, ascending", &pb.RangeRequest{Key: key, SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_VALUE}, errStreamSort},
		{"with a filter", &pb.RangeRequest{Key: key, MaxCreateRevision: 1}, errStreamFilter},
	} {
		wantStatus(t, c.name, checkRangeStream(c.req), c.want)
	}
}

var (
	errStreamSort   = status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	errStreamFilter = status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
)

func TestTxnMustNotWriteOneKeyTwice(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  []*pb.RequestOp
		ok   bool
	}{
		{"two puts of two keys", ops(opPut("a"), opPut("b")), true},
		{"two puts of one key", ops(opPut("a"), opPut("a")), false},
		{"put of a deleted key", ops(opDel("a", ""), opPut("a")), false},
		{"put before the delete", ops(opPut("a"), opDel("a", "")), false},
		{"put of the key after a deleted one", ops(opDel("a", ""), opPut("a\x00")), true},
		{"put at the begin of a deleted range", ops(opDel("b", "d"), opPut("b")), false},
		{"put within it", ops(opDel("b", "d"), opPut("cz")), false},
		{"put before it", ops(opDel("b", "d"), opPut("az")), true},
		{"put at its end", ops(opDel("b", "d"), opPut("d")), true},
		{"put within a from-key delete", ops(opDel("b", "\x00"), opPut("c")), false},
		{"put at the begin of a from-key delete", ops(opDel("b", "\x00"), opPut("b")), false},
		{"put before a from-key delete", ops(opDel("b", "\x00"), opPut("a")), true},
		{"put of any key beside a delete of all", ops(opDel("\x00", "\x00"), opPut("a")), false},
		{"put in an inner from-key delete", ops(opTxn(ops(opDel("b", "\x00")), nil), opPut("c")), false},
		{"put within a range that ends before it begins", ops(opDel("d", "b"), opPut("c")), true},
		{"two deletes of one key", ops(opDel("a", ""), opDel("a", "z")), true},
		{"either branch puts the same key", ops(opTxn(ops(opPut("a")), ops(opPut("a")))), true},
		{"inner and outer put the same key", ops(opTxn(ops(opPut("a")), nil), opPut("a")), false},
		{"else and outer put the same key", ops(opTxn(nil, ops(opPut("a"))), opPut("a")), false},
		{"two inner ones put the same key", ops(opTxn(ops(opPut("a")), nil), opTxn(nil, ops(opPut("a")))), false},
		{"inner puts what the outer deletes", ops(opTxn(nil, ops(opPut("a"))), opDel("a", "")), false},
		{"outer puts what the inner deletes", ops(opPut("a"), opTxn(ops(opDel("a", "b")), nil)), false},
		{"else of the inner deletes it", ops(opPut("a"), opTxn(nil, ops(opDel("a", "b")))), false},
		{"inner puts what an earlier inner deletes", ops(opTxn(ops(opDel("a", "")), nil), opTxn(ops(opPut("a")), nil)), false},
		{"inner puts what a later inner deletes passes, as in etcd", ops(opTxn(ops(opPut("a")), nil), opTxn(ops(opDel("a", "")), nil)), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want error
			if !c.ok {
				want = rpctypes.ErrGRPCDuplicateKey
			}
			wantStatus(t, "checkOverlaps in the first branch", checkOverlaps(&pb.TxnRequest{Success: c.ops}), want)
			wantStatus(t, "checkOverlaps in the second branch", checkOverlaps(&pb.TxnRequest{Failure: c.ops}), want)
		})
	}
}

// The set answers as a list of all intervals would, and stays disjoint.
func TestIntervalsContainWhatWasAdded(t *testing.T) {
	key := rapid.StringMatching(`[a-d]{1,2}`)
	end := rapid.OneOf(key, rapid.Just(infinite))
	rapid.Check(t, func(t *rapid.T) {
		type interval struct{ begin, end string }
		var set intervals
		var all []interval
		for i := range rapid.IntRange(0, 12).Draw(t, "n") {
			in := interval{key.Draw(t, fmt.Sprint("begin", i)), end.Draw(t, fmt.Sprint("end", i))}
			set.add(in.begin, in.end)
			all = append(all, in)
		}
		k := key.Draw(t, "key")
		want := false
		for _, in := range all {
			want = want || in.begin <= k && (k < in.end || in.end == infinite)
		}
		if got := set.contains(k); got != want {
			t.Fatalf("contains(%q) = %v, want %v in %v", k, got, want, all)
		}
		last, first := "", true
		set.ends.Scan(func(b, e string) bool {
			if e != infinite && b >= e || !first && (last == infinite || b <= last) {
				t.Fatalf("interval [%q, %q) after one that ends at %q", b, e, last)
			}
			last, first = e, false
			return true
		})
	})
}
