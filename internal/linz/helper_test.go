package linz

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// at places an operation in time.
func at(client int, call, ret time.Duration, op Op) Op {
	op.Client, op.Call, op.Return = client, call, ret
	if op.Key == "" {
		op.Key = "k"
	}
	return op
}

func get(rev int64, seen Version) Op {
	return Op{Kind: Get, Outcome: OK, Revision: rev, Seen: seen}
}

func put(value string, rev int64) Op {
	return Op{Kind: Put, Value: value, Outcome: OK, Revision: rev}
}

func del(rev int64, seen Version) Op {
	return Op{Kind: Delete, Outcome: OK, Revision: rev, Seen: seen}
}

func swap(expect int64, value string, rev int64) Op {
	return Op{Kind: CAS, Expect: expect, Value: value, Outcome: OK, Revision: rev, Swapped: true}
}

func noswap(expect int64, value string, rev int64, seen Version) Op {
	return Op{Kind: CAS, Expect: expect, Value: value, Outcome: OK, Revision: rev, Seen: seen}
}

func unknown(op Op) Op {
	return Op{Kind: op.Kind, Value: op.Value, Expect: op.Expect}
}

func failed(op Op) Op {
	op = unknown(op)
	op.Outcome = Failed
	return op
}

func ver(value string, mod int64) Version { return Version{value, mod} }

// finally is the state of key k in the end.
func finally(rev int64, v Version) Final {
	return Final{Revision: rev, Keys: map[string]Version{"k": v}}
}

// oracles returns which oracles object.
func oracles(r *Report) []string {
	var names []string
	for _, v := range r.Violations {
		names = append(names, v.Oracle)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func check(t *testing.T, want []string, final Final, ops ...Op) {
	t.Helper()
	rep := Check(ops, final, 0)
	if got := oracles(rep); !slices.Equal(got, want) {
		t.Errorf("Check: oracles %q object, want %q\n%v", got, want, rep.Err())
	}
}

// inSequence lays operations out one after the other, each by its own
// client, each taking 1 and waiting 1.
func inSequence(ops ...Op) []Op {
	out := make([]Op, len(ops))
	for i, op := range ops {
		out[i] = at(i%4, time.Duration(2*i), time.Duration(2*i+1), op)
	}
	return out
}

func TestNamesAreReadable(t *testing.T) {
	for _, tc := range []struct {
		got  fmt.Stringer
		want string
	}{
		{Get, "get"},
		{Put, "put"},
		{Delete, "delete"},
		{CAS, "cas"},
		{Kind(9), "kind(9)"},
		{Unknown, "unknown"},
		{Failed, "failed"},
		{OK, "ok"},
		{Outcome(9), "outcome(9)"},
		{Version{}, "nothing"},
		{ver("a", 7), "a@7"},
		{new(at(1, 2, 3, put("a", 7))), "client 1 put k [2ns, 3ns]: put a -> revision 7"},
		{new(at(1, 2, 3, get(7, ver("a", 7)))), "client 1 get k [2ns, 3ns]: get -> a@7, revision 7"},
		{new(at(1, 2, 3, del(7, Version{}))), "client 1 delete k [2ns, 3ns]: delete -> nothing, revision 7"},
		{new(at(1, 2, 0, unknown(swap(3, "b", 0)))), "client 1 cas k [2ns, ?]: cas @3 to b -> unknown"},
	} {
		if got := tc.got.String(); got != tc.want {
			t.Errorf("String() = %q, want %q", got, tc.want)
		}
	}
}
