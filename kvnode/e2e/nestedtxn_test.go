package e2e

import (
	"errors"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

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

// What is wrong at any depth is refused as a whole, and what may not happen
// together in branches of which one is taken may.
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
