package etcdapi

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"pgregory.net/rapid"
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
