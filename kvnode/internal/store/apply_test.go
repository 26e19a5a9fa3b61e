package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// history returns a replica with these versions:
//
//	revision 2  a=1      revision 3  b=1       revision 4  a=2
//	revision 5  c=0      revision 6  b deleted
func history(t *testing.T) *replica {
	t.Helper()
	r := newReplica(t)
	r.put("a", "1")
	r.put("b", "1")
	r.put("a", "2")
	r.put("c", "0")
	r.must(del("b", ""))
	return r
}

// short formats the pairs of resp as key=value@mod, with count and more.
func short(resp *pb.RangeResponse, err error) string {
	if err != nil {
		return rpctypes.ErrorDesc(err)
	}
	var out []string
	for _, kv := range resp.GetKvs() {
		out = append(out, fmt.Sprintf("%s=%s@%d", kv.GetKey(), kv.GetValue(), kv.GetModRevision()))
	}
	out = append(out, fmt.Sprintf("count %d", resp.GetCount()))
	if resp.GetMore() {
		out = append(out, "more")
	}
	return strings.Join(out, " ")
}

func TestRange(t *testing.T) {
	r := history(t)
	r.must(compact(3))
	all := func(edit func(*pb.RangeRequest)) *pb.RangeRequest {
		req := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("\x00")}
		edit(req)
		return req
	}
	compacted, future := rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted), rpctypes.ErrorDesc(rpctypes.ErrGRPCFutureRev)
	for _, c := range []struct {
		name string
		req  *pb.RangeRequest
		want string
	}{
		{"everything", all(func(*pb.RangeRequest) {}), "a=2@4 c=0@5 count 2"},
		{"one key", &pb.RangeRequest{Key: []byte("a")}, "a=2@4 count 1"},
		{"a key that is deleted", &pb.RangeRequest{Key: []byte("b")}, "count 0"},
		{"the end is left out", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("c")}, "a=2@4 count 1"},
		{"the end is the key", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("a")}, "count 0"},
		{"the end is below the key", &pb.RangeRequest{Key: []byte("c"), RangeEnd: []byte("a")}, "count 0"},
		{"all keys", &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}, "a=2@4 c=0@5 count 2"},
		{"negative revision is the newest", all(func(r *pb.RangeRequest) { r.Revision = -1 }), "a=2@4 c=0@5 count 2"},
		{"below the compacted revision", all(func(r *pb.RangeRequest) { r.Revision = 2 }), compacted},
		{"at the compacted revision", all(func(r *pb.RangeRequest) { r.Revision = 3 }), "a=1@2 b=1@3 count 2"},
		{"before the deletion", all(func(r *pb.RangeRequest) { r.Revision = 5 }), "a=2@4 b=1@3 c=0@5 count 3"},
		{"at the newest revision", all(func(r *pb.RangeRequest) { r.Revision = 6 }), "a=2@4 c=0@5 count 2"},
		{"above the newest revision", all(func(r *pb.RangeRequest) { r.Revision = 7 }), future},
		{"limit below the count", all(func(r *pb.RangeRequest) { r.Limit = 1 }), "a=2@4 count 2 more"},
		{"limit equal to the count", all(func(r *pb.RangeRequest) { r.Limit = 2 }), "a=2@4 c=0@5 count 2"},
		{"negative limit is none", all(func(r *pb.RangeRequest) { r.Limit = -1 }), "a=2@4 c=0@5 count 2"},
		{"count only", all(func(r *pb.RangeRequest) { r.CountOnly, r.Limit = true, 1 }), "count 2"},
		{"keys only", all(func(r *pb.RangeRequest) { r.KeysOnly = true }), "a=@4 c=@5 count 2"},
		{"descending by key with a limit", all(func(r *pb.RangeRequest) { r.SortOrder, r.Limit = pb.RangeRequest_DESCEND, 1 }), "c=0@5 count 2 more"},
		{"a target without an order is ascending", all(func(r *pb.RangeRequest) { r.SortTarget = pb.RangeRequest_VALUE }), "c=0@5 a=2@4 count 2"},
		{"a target without an order is sorted after the limit", all(func(r *pb.RangeRequest) {
			r.Revision, r.SortTarget, r.Limit = 5, pb.RangeRequest_VALUE, 1
		}), "b=1@3 count 3 more"},
		{"a target with an order is sorted before the limit", all(func(r *pb.RangeRequest) {
			r.Revision, r.SortTarget, r.SortOrder, r.Limit = 5, pb.RangeRequest_VALUE, pb.RangeRequest_ASCEND, 1
		}), "c=0@5 count 3 more"},
		{"count is before filters", all(func(r *pb.RangeRequest) { r.MinModRevision = 5 }), "c=0@5 count 2"},
		{"both bounds belong to the filter", all(func(r *pb.RangeRequest) { r.MinModRevision, r.MaxModRevision = 4, 4 }), "a=2@4 count 2"},
		{"create revision", all(func(r *pb.RangeRequest) { r.MaxCreateRevision = 2 }), "a=2@4 count 2"},
		{"limit after filters", all(func(r *pb.RangeRequest) { r.MinModRevision, r.Limit = 5, 1 }), "c=0@5 count 2"},
		{"unknown order", all(func(r *pb.RangeRequest) { r.SortOrder = 3 }), rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidSortOption)},
		{"unknown target", all(func(r *pb.RangeRequest) { r.SortTarget = -1 }), rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidSortOption)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := short(r.Range(t.Context(), c.req)); got != c.want {
				t.Errorf("Range(%v) = %s, want %s", c.req, got, c.want)
			}
			resp, err := r.request(&pb.InternalRaftRequest{Range: c.req})
			through, _ := resp.(*pb.RangeResponse)
			if got := short(through, err); got != c.want {
				t.Errorf("Apply(%v) = %s, want %s", c.req, got, c.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Range(ctx, all(func(*pb.RangeRequest) {})); !errors.Is(err, context.Canceled) {
		t.Errorf("Range() with a context that has ended = %v, want %v", err, context.Canceled)
	}
}

func TestWritesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		req  *pb.InternalRaftRequest
		want error
	}{
		{"unknown TTL lease", &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("a"), Lease: 1}}, rpctypes.ErrGRPCLeaseNotFound},
		{"ignore the value of no key", &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("b"), IgnoreValue: true}}, rpctypes.ErrGRPCKeyNotFound},
		{"ignore the lease of no key", &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("b"), IgnoreLease: true}}, rpctypes.ErrGRPCKeyNotFound},
		{"compact below the first revision", compact(-1), rpctypes.ErrGRPCCompacted},
		{"compact the future", compact(7), rpctypes.ErrGRPCFutureRev},
		{"transaction that fails half-way", txn(&pb.TxnRequest{Success: []*pb.RequestOp{
			opPut("new", "1"), opDelete("a", ""),
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a"), IgnoreValue: true}}},
		}}), rpctypes.ErrGRPCKeyNotFound},
		{"transaction that would fail before it writes", txn(&pb.TxnRequest{Success: []*pb.RequestOp{
			opPut("new", "1"), {Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("a"), Revision: 7}}},
		}}), rpctypes.ErrGRPCFutureRev},
		{"empty operation", txn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("new", "1"), {}}}), rpctypes.ErrGRPCKeyNotFound},
		{"request of no kind", &pb.InternalRaftRequest{}, store.ErrUnimplemented},
		{"users and roles", &pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}}, store.ErrUnimplemented},
		{"user", &pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "root"}}, store.ErrUnimplemented},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := history(t)
			before := hashOf(t, r.Store)
			if resp, err := r.request(c.req); err != c.want || resp != nil { //nolint:errorlint // clients see this very value
				t.Errorf("Apply(%v) = %v, %v, want %v", c.req, resp, err, c.want)
			}
			if after := hashOf(t, r.Store); after != before {
				t.Errorf("HashKV = %+v after a refusal, want %+v", after, before)
			}
			if kv, _ := r.Get([]byte("new")); kv != nil {
				t.Errorf("Get(new) = %v after a refusal, want nothing", kv)
			}
			r.put("a", "3") // the refusal has changed nothing
			if kv, _ := r.Get([]byte("a")); kv.GetVersion() != 3 || kv.GetModRevision() != 7 || kv.GetCreateRevision() != 2 {
				t.Errorf("Get(a) = %v, want version 3 of revision 7", kv)
			}
		})
	}
}

func TestWhatMakesARevision(t *testing.T) {
	for _, c := range []struct {
		name string
		req  *pb.InternalRaftRequest
		want int64 // afterwards
	}{
		{"put", put("a", "2"), 7},
		{"delete of a key", del("a", ""), 7},
		{"delete of a key that is deleted", del("b", ""), 6},
		{"delete of an empty range", del("d", "e"), 6},
		{"transaction with two puts", txn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("a", "3"), opPut("c", "3")}}), 7},
		{"transaction that only reads", txn(&pb.TxnRequest{Success: []*pb.RequestOp{opRange("a", "")}}), 6},
		{"transaction that deletes nothing", txn(&pb.TxnRequest{Success: []*pb.RequestOp{opDelete("b", "")}}), 6},
		{"transaction with puts in the other branch", txn(&pb.TxnRequest{Failure: []*pb.RequestOp{opPut("a", "3")}}), 6},
		{"compaction", compact(6), 6},
		{"alarm", activate(1, pb.AlarmType_NOSPACE), 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := history(t)
			r.must(c.req)
			if got := r.Revision(); got != c.want {
				t.Errorf("Revision() = %d, want %d", got, c.want)
			}
		})
	}
	if got := newReplica(t).Revision(); got != 1 {
		t.Errorf("Revision() of an empty store = %d, want 1", got)
	}
}

// Operations see earlier writes of their transaction. As in etcd, headers of operations have a
// revision, and headers of nested transactions are empty.
func TestTxnReadsItsOwnWrites(t *testing.T) {
	r := history(t)
	got := r.must(txn(&pb.TxnRequest{Success: []*pb.RequestOp{
		opRange("a", ""),
		opPut("a", "3"),
		opRange("a", ""),
		// The comparison sees the state before the transaction, and the deletion what the
		// transaction wrote.
		opTxn(&pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("a"), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte("2")}}},
			Success: []*pb.RequestOp{opDelete("a", "z")},
			Failure: []*pb.RequestOp{opPut("wrong", "branch")},
		}),
	}}))
	resp, ok := got.(*pb.TxnResponse)
	if !ok {
		t.Fatalf("Apply(txn) = %T", got)
	}
	ops := resp.GetResponses()
	nested := ops[3].GetResponseTxn()
	facts := fmt.Sprint(
		resp.GetHeader().GetRevision(), ops[0].GetResponseRange().GetHeader().GetRevision(), short(ops[0].GetResponseRange(), nil),
		ops[1].GetResponsePut().GetHeader().GetRevision(), short(ops[2].GetResponseRange(), nil),
		nested.GetHeader().GetRevision(), nested.GetSucceeded(), nested.GetResponses()[0].GetResponseDeleteRange().GetDeleted(),
	)
	if want := fmt.Sprint(7, 6, "a=2@4 count 1", 7, "a=3@7 count 1", 0, true, 2); facts != want {
		t.Errorf("txn = %s, want %s", facts, want)
	}
	if r.Revision() != 7 {
		t.Errorf("Revision() = %d, want 7: one for the transaction", r.Revision())
	}
}

func TestCompareOnKeysThatAreMissing(t *testing.T) {
	r := history(t)
	for target := range pb.Compare_CompareTarget_name {
		for result, want := range map[pb.Compare_CompareResult]bool{
			pb.Compare_EQUAL: true, pb.Compare_NOT_EQUAL: false, pb.Compare_GREATER: false, pb.Compare_LESS: false,
		} {
			c := &pb.Compare{Key: []byte("missing"), Target: pb.Compare_CompareTarget(target), Result: result}
			// A missing key compares as zero, except that a missing value equals no
			// value.
			want = want && c.GetTarget() != pb.Compare_VALUE
			resp, err := r.Txn(t.Context(), &pb.TxnRequest{Compare: []*pb.Compare{c}})
			if err != nil || resp.GetSucceeded() != want {
				t.Errorf("Txn(%v) = %v, %v, want %v", c, resp.GetSucceeded(), err, want)
			}
		}
	}
	if _, err := r.Txn(t.Context(), put("a", "1").GetTxn()); err != nil {
		t.Errorf("Txn(nil) = %v", err)
	}
	writes := &pb.TxnRequest{Failure: []*pb.RequestOp{opTxn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("a", "1")}})}}
	if _, err := r.Txn(t.Context(), writes); err != rpctypes.ErrGRPCNotCapable { //nolint:errorlint // clients see this very value
		t.Errorf("Txn(with a put) = %v, want a refusal", err)
	}
}

func TestCommandsOfOtherTermsHaveNoEffect(t *testing.T) {
	for _, c := range []struct {
		required, term uint64
		want           error
	}{{0, 5, nil}, {5, 5, nil}, {4, 5, store.ErrFenced}, {6, 5, store.ErrFenced}} {
		for name, req := range map[string]*pb.InternalRaftRequest{"put": put("k", "v"), "revoke": revoke(1)} {
			r := newReplica(t)
			r.must(grant(1, 10))
			r.must(putUnder("k", 1))
			before := r.Revision()
			res := r.Apply(3, c.term, encode(t, &store.Command{ID: 3, RequiredTerm: c.required, Request: req}))
			if res.ID != 3 || res.Err != c.want || (r.Revision() > before) != (c.want == nil) { //nolint:errorlint // stable
				t.Errorf("Apply(%s, required term %d, term %d) = %+v at revision %d, want %v", name, c.required, c.term, res, r.Revision(), c.want)
			}
		}
	}
}

func TestEntriesThatAreNoRequests(t *testing.T) {
	r := newReplica(t)
	for i, c := range []struct {
		name string
		data []byte
		want store.Result
	}{
		{"raft's own", nil, store.Result{}},
		{"without effect", encode(t, &store.Command{ID: 8}), store.Result{ID: 8}},
		{"garbage", []byte("garbage"), store.Result{Err: store.ErrMalformed}},
	} {
		got := r.Apply(uint64(i+1), 2, c.data)
		if got.ID != c.want.ID || got.Err != c.want.Err || got.Response != nil { //nolint:errorlint // stable
			t.Errorf("Apply(%s) = %+v, want %+v", c.name, got, c.want)
		}
		if r.Applied() != uint64(i+1) {
			t.Errorf("Applied() = %d after %s, want %d", r.Applied(), c.name, i+1)
		}
	}
	again := r.Apply(2, 2, encode(t, &store.Command{ID: 8, Request: put("a", "b")}))
	if again.Err != store.ErrStale || r.Revision() != 1 { //nolint:errorlint // stable
		t.Errorf("Apply(an index again) = %+v at revision %d, want %v", again, r.Revision(), store.ErrStale)
	}
}

func TestGetAllocatesNothing(t *testing.T) {
	r := history(t)
	key, missing := []byte("a"), []byte("missing")
	if n := testing.AllocsPerRun(100, func() {
		r.Get(key)
		r.Get(missing)
	}); n != 0 {
		t.Errorf("Get allocates %v times, want 0", n)
	}
	if kv, _ := r.Get(missing); kv != nil {
		t.Errorf("Get(missing) = %v, want nil", kv)
	}
	if kv, rev := r.Get(key); rev != 6 || !proto.Equal(kv.Message(), r.first("a")) {
		t.Errorf("Get(a) = %v, %d", kv, rev)
	}
}

func (r *replica) first(key string) proto.Message {
	resp, err := r.Range(context.Background(), &pb.RangeRequest{Key: []byte(key)})
	if err != nil {
		r.t.Fatalf("Range(%s) = %v", key, err)
	}
	return resp.GetKvs()[0]
}

// Ops counts executed operations as etcd does, and entries with two or more as transactions.
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
