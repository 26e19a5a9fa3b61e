package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/testcluster"
)

// Short names for what transactions are made of.
var (
	opPut, opGet, opDelete, opTxn = clientv3.OpPut, clientv3.OpGet, clientv3.OpDelete, clientv3.OpTxn
	version, value                = clientv3.Version, clientv3.Value
)

type (
	conds = []clientv3.Cmp
	ops   = []clientv3.Op
)

// TestTransactions commits what etcdctl cannot write down: transactions in
// transactions, and comparisons of ranges.
func TestTransactions(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		a, b := memberClients(t, startCluster(t, p))
		t.Run("in transactions", func(t *testing.T) { transactionsNest(t, a, b) })
		t.Run("of too much", func(t *testing.T) { nestedTransactionsAreRefused(t, a) })
		t.Run("compare ranges", func(t *testing.T) { transactionsCompareRanges(t, b) })
	})
}

// Nested transactions commit at one revision. Which branches are taken is decided
// before anything is written; what they read is what was written before them.
func transactionsNest(t *testing.T, client, other *clientv3.Client) {
	ctx := deadline(t)
	_, err := client.Put(ctx, "a", "1")
	must(t, err)
	resp, err := client.Txn(ctx).If(clientv3.Compare(value("a"), "=", "1")).Then(
		opPut("a", "2"),
		opTxn(conds{clientv3.Compare(value("a"), "=", "2")}, ops{opPut("after", "")}, ops{
			opGet("a"),
			opPut("before", "1"),
			opTxn(conds{clientv3.Compare(version("before"), "=", 0)}, ops{opGet("before"), opDelete("before2"), opPut("deep", "1")}, nil),
		}),
		opTxn(nil, ops{opGet("", clientv3.WithPrefix(), clientv3.WithKeysOnly())}, ops{opPut("never", "")}),
		opTxn(nil, nil, nil),
	).Else(opPut("never", "")).Commit()
	must(t, err)
	rev := resp.Header.GetRevision()
	want := fmt.Sprintf("true[put txn:false[a=2@%d put txn:true[before=1@%d del:0 put]] txn:true[a=@%d before=@%d deep=@%d] txn:true[]]", rev, rev, rev, rev, rev)
	if got := txnText(resp.Succeeded, resp.Responses); got != want {
		t.Errorf("Commit() = %s, want %s", got, want)
	}
	all, err := other.Get(ctx, "", clientv3.WithPrefix())
	must(t, err)
	if got, want := txnText(true, []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseRange{ResponseRange: (*pb.RangeResponse)(all)}}}),
		fmt.Sprintf("true[a=2@%d before=1@%d deep=1@%d]", rev, rev, rev); got != want || all.Header.GetRevision() != rev {
		t.Errorf("Get() at another member = %s at revision %d, want %s at %d", got, all.Header.GetRevision(), want, rev)
	}
	// One that writes nothing has no revision of its own, however deep it is.
	resp, err = client.Txn(ctx).Then(opTxn(conds{clientv3.Compare(value("a"), "=", "3")}, ops{opPut("a", "")}, ops{opDelete("nothing"), opGet("deep")})).Commit()
	must(t, err)
	if got, want := txnText(resp.Succeeded, resp.Responses), fmt.Sprintf("true[txn:false[del:0 deep=1@%d]]", rev); got != want || resp.Header.GetRevision() != rev {
		t.Errorf("Commit() without writes = %s at revision %d, want %s at %d", got, resp.Header.GetRevision(), want, rev)
	}
}

// txnText writes a transaction's answers as true[put key=value@revision del:1 …].
func txnText(succeeded bool, responses []*pb.ResponseOp) string {
	var all []any
	for _, r := range responses {
		switch {
		case r.GetResponsePut() != nil:
			all = append(all, "put")
		case r.GetResponseDeleteRange() != nil:
			all = append(all, fmt.Sprint("del:", r.GetResponseDeleteRange().GetDeleted()))
		case r.GetResponseTxn() != nil:
			all = append(all, "txn:"+txnText(r.GetResponseTxn().GetSucceeded(), r.GetResponseTxn().GetResponses()))
		}
		for _, kv := range r.GetResponseRange().GetKvs() {
			all = append(all, fmt.Sprintf("%s=%s@%d", kv.GetKey(), kv.GetValue(), kv.GetModRevision()))
		}
	}
	return fmt.Sprint(succeeded, fmt.Sprint(all))
}

// An error at any depth refuses the whole transaction. Operations that exclude each other are
// accepted in branches of which only one is taken.
func nestedTransactionsAreRefused(t *testing.T, client *clientv3.Client) {
	ctx := deadline(t)
	gets := func(n int) (all ops) {
		for range n {
			all = append(all, opGet("a"))
		}
		return all
	}
	before, err := client.Get(ctx, "a")
	must(t, err)
	for _, txn := range []struct {
		name string
		ops  ops
		want error
	}{
		{"a key put twice, once deeper", ops{opPut("x", ""), opTxn(nil, ops{opTxn(nil, ops{opPut("x", "")}, nil)}, nil)}, rpctypes.ErrDuplicateKey},
		{"a key put in two transactions", ops{opTxn(nil, ops{opPut("x", "")}, nil), opTxn(nil, nil, ops{opPut("x", "")})}, rpctypes.ErrDuplicateKey},
		{"a key deleted and put deeper", ops{opDelete("w", clientv3.WithRange("y")), opTxn(nil, ops{opPut("x", "")}, nil)}, rpctypes.ErrDuplicateKey},
		{"no key, deeper", ops{opTxn(nil, nil, ops{opGet("")})}, rpctypes.ErrEmptyKey},
		{"no key to compare, deeper", ops{opTxn(conds{clientv3.Compare(value(""), "=", "")}, nil, nil)}, rpctypes.ErrEmptyKey},
		{"a future revision, deeper", ops{opTxn(nil, ops{opGet("a", clientv3.WithRev(1000))}, nil)}, rpctypes.ErrFutureRev},
		{"129 operations", gets(129), rpctypes.ErrTooManyOps},
		{"128 operations", gets(128), nil},
		{"1 operation with 127 in it", ops{opTxn(nil, gets(127), nil)}, nil},
		{"1 operation with 128 in it", ops{opTxn(nil, gets(128), nil)}, rpctypes.ErrTooManyOps},
		{"2 operations with 126 in each", ops{opTxn(nil, gets(126), gets(126)), opTxn(nil, gets(126), nil)}, nil},
		{"a key put in both branches", ops{opTxn(nil, ops{opPut("x", "")}, ops{opPut("x", "")})}, nil},
	} {
		_, err := client.Txn(ctx).Then(txn.ops...).Commit()
		if !errors.Is(err, txn.want) {
			t.Errorf("Commit() of %s = %v, want %v", txn.name, err, txn.want)
		}
	}
	after, err := client.Get(ctx, "x")
	if rev := before.Header.GetRevision() + 1; err != nil || after.Header.GetRevision() != rev || len(after.Kvs) != 1 {
		t.Errorf("Get(x) = %v, %v, want one write since, at revision %d", after, err, rev)
	}
}

// A comparison of a range holds if it does for each key in it; for one without
// keys, if it would for a missing key.
func transactionsCompareRanges(t *testing.T, client *clientv3.Client) {
	ctx := deadline(t)
	lease, err := client.Grant(ctx, 100)
	must(t, err)
	var rev int64
	for _, key := range []string{"p/1", "p/2", "p/2", "p/3"} {
		resp, err := client.Put(ctx, key, "v", clientv3.WithLease(lease.ID))
		must(t, err)
		rev = resp.Header.GetRevision()
	}
	for _, cmp := range []struct {
		name string
		cmp  clientv3.Cmp
		want bool
	}{
		{"all versions are above 0", clientv3.Compare(version("p/").WithPrefix(), ">", 0), true},
		{"all versions are below 2", clientv3.Compare(version("p/").WithPrefix(), "<", 2), false},
		{"no version is 3", clientv3.Compare(version("p/").WithPrefix(), "!=", 3), true},
		{"no version is 2", clientv3.Compare(version("p/").WithPrefix(), "!=", 2), false},
		{"up to the key of version 2", clientv3.Compare(version("p/1").WithRange("p/2"), "=", 1), true},
		{"with the key of version 2", clientv3.Compare(version("p/1").WithRange("p/2\x00"), "=", 1), false},
		{"all are of one lease", clientv3.Compare(clientv3.LeaseValue("p/").WithPrefix(), "=", lease.ID), true},
		{"all are without a lease", clientv3.Compare(clientv3.LeaseValue("p/").WithPrefix(), "=", 0), false},
		{"nothing has changed since", clientv3.Compare(clientv3.ModRevision("p/").WithPrefix(), "<", rev+1), true},
		{"nothing has changed with", clientv3.Compare(clientv3.ModRevision("p/").WithPrefix(), "<", rev), false},
		{"all were created by then", clientv3.Compare(clientv3.CreateRevision("p/").WithPrefix(), "<", rev+1), true},
		{"all values are equal", clientv3.Compare(value("p/").WithPrefix(), "=", "v"), true},
		{"a value differs", clientv3.Compare(value("p/").WithPrefix(), "!=", "v"), false},
		{"no key is there", clientv3.Compare(version("none/").WithPrefix(), "=", 0), true},
		{"some key is there", clientv3.Compare(version("none/").WithPrefix(), ">", 0), false},
		{"no key has no value", clientv3.Compare(value("none/").WithPrefix(), "=", ""), false},
		{"no key has another value", clientv3.Compare(value("none/").WithPrefix(), "!=", "v"), false},
		{"a range that ends before it begins", clientv3.Compare(version("p/2").WithRange("p/1"), "=", 0), true},
		{"all keys from one on", clientv3.Compare(version("p/3").WithRange("\x00"), "=", 1), true},
		{"all keys", clientv3.Compare(version("\x00").WithRange("\x00"), "=", 1), false},
	} {
		resp, err := client.Txn(ctx).If(cmp.cmp).Commit()
		if err != nil || resp.Succeeded != cmp.want {
			t.Errorf("comparison %q = %v, %v, want %v", cmp.name, resp.Succeeded, err, cmp.want)
		}
		// Together with a write it goes another way, and must not differ.
		resp, err = client.Txn(ctx).If(cmp.cmp).Then(opTxn(conds{cmp.cmp}, ops{opPut("b", "")}, nil)).Else(opTxn(conds{cmp.cmp}, nil, ops{opPut("b", "")})).Commit()
		if err != nil || resp.Succeeded != cmp.want || resp.Responses[0].GetResponseTxn().GetSucceeded() != cmp.want {
			t.Errorf("comparison %q in front of a write = %v, %v, want %v twice", cmp.name, resp, err, cmp.want)
		}
	}
}

// fill writes n keys with values of size bytes, as many at a time as a
// transaction may hold, and returns the revision of the last ones.
func fill(ctx context.Context, t *testing.T, c *clientv3.Client, prefix, letter string, n, size int) int64 {
	t.Helper()
	value, batch, rev := strings.Repeat(letter, size), min(100, 1<<20/size), int64(0)
	for i := 0; i < n; i += batch {
		var ops []clientv3.Op
		for j := i; j < min(n, i+batch); j++ {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%04d", prefix, j), value))
		}
		resp, err := c.Txn(ctx).Then(ops...).Commit()
		must(t, err)
		rev = resp.Header.GetRevision()
	}
	return rev
}

// TestStreamedRanges reads by GetStream. Its clients are of different members.
func TestStreamedRanges(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		a, b := memberClients(t, startCluster(t, p))
		t.Run("are those of Get", func(t *testing.T) { streamsAreThoseOfGet(t, a) })
		t.Run("are of one revision", func(t *testing.T) { streamsAreOfOneRevision(t, a, b) })
		t.Run("are refused", func(t *testing.T) { streamsAreRefused(t, b) })
	})
}

// A streamed range equals Get's answer, header included, in chunks of any size.
func streamsAreThoseOfGet(t *testing.T, client *clientv3.Client) {
	ctx := deadline(t)
	before := fill(ctx, t, client, "k/", "a", 300, 3<<10)
	fill(ctx, t, client, "k/0", "b", 30, 10)
	for _, ask := range []struct {
		name, key string
		opts      []clientv3.OpOption
	}{
		{"one key", "k/0000", nil},
		{"a missing key", "nothing", nil},
		{"a prefix", "k/", []clientv3.OpOption{clientv3.WithPrefix()}},
		{"an empty prefix", "nothing/", []clientv3.OpOption{clientv3.WithPrefix()}},
		{"from a key", "k/0250", []clientv3.OpOption{clientv3.WithFromKey()}},
		{"all keys", "", []clientv3.OpOption{clientv3.WithPrefix()}},
		{"a limit below what there is", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(299)}},
		{"a limit of exactly what there is", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(330)}},
		{"a limit of one", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(1)}},
		{"an earlier revision", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(before)}},
		{"keys", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly()}},
		{"a count", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCountOnly()}},
		{"what this member has", "k/0000", []clientv3.OpOption{clientv3.WithSerializable()}},
	} {
		want, err := client.Get(ctx, ask.key, ask.opts...)
		must(t, err)
		stream, err := client.GetStream(ctx, ask.key, ask.opts...)
		must(t, err)
		got, err := clientv3.GetStreamToGetResponse(stream)
		if err != nil || rangeText(got) != rangeText(want) {
			t.Errorf("GetStream() of %s = %.400s, %v, want %.400s", ask.name, rangeText(got), err, rangeText(want))
		}
	}
}

// rangeText shows a response in full.
func rangeText(r *clientv3.GetResponse) string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprint(r.Header, r.More, r.Count, len(r.Kvs), r.Kvs)
}

// A stream stays at the revision at which it began, also if keys are written after its first chunk.
// Only the last chunk has a header.
func streamsAreOfOneRevision(t *testing.T, client, other *clientv3.Client) {
	ctx := deadline(t)
	const keys = 64
	began := fill(ctx, t, client, "one/", "a", keys, 100<<10)
	stream, err := client.GetStream(ctx, "one/", clientv3.WithPrefix())
	must(t, err)
	first := <-stream
	must(t, first.Err())
	_, err = other.Put(ctx, "one/0000-new", "b")
	must(t, err)
	_, err = other.Delete(ctx, "one/", clientv3.WithRange("one/0060"))
	must(t, err)
	last, found, chunks := first, len(first.Kvs), 1
	for chunk := range stream {
		must(t, chunk.Err())
		if last.Header != nil {
			t.Errorf("chunk %d, not the last one, has the header %v", chunks, last.Header)
		}
		found += len(chunk.Kvs)
		for _, kv := range chunk.Kvs {
			if kv.GetModRevision() > began {
				t.Errorf("%s is of revision %d, want no more than %d", kv.GetKey(), kv.GetModRevision(), began)
			}
		}
		last = chunk
		chunks++
	}
	if found != keys || chunks < 2 || last.Count != keys || last.Header.GetRevision() != began {
		t.Errorf("%d keys in %d chunks, with count %d at revision %d, want %d in several at %d", found, chunks, last.Count, last.Header.GetRevision(), keys, began)
	}
}

// What cannot be streamed is refused as etcd does.
func streamsAreRefused(t *testing.T, client *clientv3.Client) {
	ctx := deadline(t)
	rev := fill(ctx, t, client, "refused/", "a", 10, 10)
	fill(ctx, t, client, "refused/", "b", 10, 10)
	_, err := client.Compact(ctx, rev+1)
	must(t, err)
	for _, ask := range []struct {
		name, key string
		opt       clientv3.OpOption
		want      error
	}{
		{"a compacted revision", "refused/", clientv3.WithRev(rev), rpctypes.ErrCompacted},
		{"a future revision", "refused/", clientv3.WithRev(rev + 2), rpctypes.ErrFutureRev},
		{"no key", "", clientv3.WithLimit(1), rpctypes.ErrEmptyKey},
		{"values in order", "refused/", clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend), status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")},
		{"keys in reverse", "refused/", clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")},
		{"new keys", "refused/", clientv3.WithMinModRev(2), status.Error(codes.Unimplemented, "RangeStream does not support revision filters")},
	} {
		stream, err := client.GetStream(ctx, ask.key, ask.opt)
		must(t, err)
		resp, err := clientv3.GetStreamToGetResponse(stream)
		if err = rpctypes.Error(err); !errors.Is(err, ask.want) && (err == nil || err.Error() != ask.want.Error()) {
			t.Errorf("GetStream() of %s = %v, %v, want %v", ask.name, resp, err, ask.want)
		}
	}
	if resp, err := client.Get(ctx, "refused/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || resp.Count != 10 {
		t.Errorf("Get() afterwards = %v, %v, want 10 keys", resp, err)
	}
}
