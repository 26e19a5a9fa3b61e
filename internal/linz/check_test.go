package linz

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// oracles returns the names of the checks that failed.
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

// Histories of a correct register pass.
func TestRightHistoriesPass(t *testing.T) {
	a, b := ver("a", 2), ver("b", 3)
	for _, tc := range []struct {
		name  string
		final Final
		ops   []Op
	}{
		{"nothing happened", Final{}, nil},
		{"one after the other", finally(3, b), inSequence(get(1, Version{}), put("a", 2), get(2, a), put("b", 3), get(3, b))},
		{"a deletion shows what it removed", finally(4, Version{}), inSequence(put("a", 2), put("b", 3), del(4, b), del(4, Version{}), get(4, Version{}))},
		{"a swap, and one that comes too late", finally(3, b), inSequence(put("a", 2), swap(2, "b", 3), noswap(2, "c", 3, b))},
		{"a swap that creates", finally(2, a), inSequence(swap(0, "a", 2), noswap(0, "b", 2, a))},
		{"overlapping operations in either order", finally(3, b), []Op{
			at(0, 0, 10, put("a", 2)), at(1, 0, 10, put("b", 3)), at(2, 5, 8, get(2, a)), at(3, 9, 12, get(3, b)),
		}},
		{"another key moves the revision on", Final{9, map[string]Version{"k": a, "other": ver("x", 9)}}, []Op{
			at(0, 0, 1, put("a", 2)), at(1, 2, 3, Op{Kind: Put, Key: "other", Value: "x", Outcome: OK, Revision: 9}), at(0, 4, 5, get(9, a)),
		}},
		{"answers at one instant overlap", finally(2, a), []Op{at(0, 0, 5, put("a", 2)), at(1, 5, 6, get(1, Version{}))}},
		{"what failed had no effect", finally(2, a), inSequence(put("a", 2), failed(put("b", 3)), failed(del(3, a)), get(2, a))},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, nil, tc.final, tc.ops...) })
	}
}

// An unknown write may take effect at any time after its call, or never.
func TestUnknownWritesMayTakeEffectLater(t *testing.T) {
	a, b := ver("a", 2), ver("b", 3)
	for _, tc := range []struct {
		name  string
		final Final
		ops   []Op
	}{
		{"never", finally(2, a), inSequence(put("a", 2), unknown(put("b", 3)), get(2, a))},
		{"after a read that did not see it", finally(3, b), inSequence(put("a", 2), unknown(put("b", 3)), get(2, a), get(3, b))},
		{"seen in the end only", finally(3, b), inSequence(put("a", 2), unknown(put("b", 3)), get(2, a))},
		{"before a later write, and never seen", finally(4, ver("c", 4)), inSequence(put("a", 2), unknown(put("b", 3)), put("c", 4))},
		{"after a later write", finally(3, b), inSequence(unknown(put("b", 3)), put("a", 2), get(2, a), get(3, b))},
		{"a deletion, late", finally(3, Version{}), inSequence(put("a", 2), unknown(del(3, a)), get(2, a), get(3, Version{}))},
		{"a deletion, never", finally(2, a), inSequence(put("a", 2), unknown(del(3, a)), get(2, a))},
		{"one of two deletions", finally(4, b.with(4)), inSequence(put("a", 2), unknown(del(3, a)), unknown(del(3, a)), get(3, Version{}), put("b", 4))},
		{"a deletion that only an unknown creation can tell of", finally(4, b.with(4)), inSequence(put("a", 2), unknown(del(3, a)), unknown(swap(0, "b", 4)))},
		{"a swap", finally(3, b), inSequence(put("a", 2), unknown(swap(2, "b", 3)), get(3, b))},
		{"a swap that had nothing to swap", finally(2, a), inSequence(put("a", 2), unknown(swap(1, "b", 3)), get(2, a))},
		{"an unknown read says nothing", finally(2, a), inSequence(put("a", 2), unknown(get(1, Version{})), get(2, a))},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, nil, tc.final, tc.ops...) })
	}
}

func (v Version) with(mod int64) Version { v.Mod = mod; return v }

// Negative controls: each kind of violation is found by every check that can
// find it.
func TestViolationsAreFound(t *testing.T) {
	a, b, c := ver("a", 2), ver("b", 3), ver("c", 4)
	for _, tc := range []struct {
		name  string
		want  []string
		final Final
		ops   []Op
	}{
		{"a stale read", []string{"floor", "porcupine"}, finally(3, b), inSequence(put("a", 2), put("b", 3), get(2, a))},
		{"a stale read that claims the newest revision", []string{"floor", "porcupine"}, finally(3, b), inSequence(put("a", 2), put("b", 3), get(3, a))},
		{"a read that misses the key", []string{"porcupine"}, finally(2, a), inSequence(put("a", 2), get(2, Version{}))},
		{"two overlapping reads that saw both orders", []string{"floor", "porcupine"}, finally(3, b), []Op{
			at(0, 0, 1, put("a", 2)), at(1, 2, 20, put("b", 3)), at(2, 3, 5, get(3, b)), at(3, 6, 8, get(2, a)),
		}},
		{"a lost write", []string{"floor", "missing", "porcupine"}, finally(3, a), inSequence(put("a", 2), put("b", 3))},
		{"a lost write that a later read misses", []string{"floor", "missing", "porcupine"}, finally(3, a), inSequence(put("a", 2), put("b", 3), get(3, a))},
		{"a lost write and its revision", []string{"floor", "missing", "porcupine", "revision", "session"}, finally(2, a), inSequence(put("a", 2), put("b", 3), get(2, a), get(2, a), put("d", 3), get(2, a))},
		{"a lost deletion", []string{"floor", "missing", "porcupine"}, finally(3, a), inSequence(put("a", 2), del(3, a))},
		{"a resurrected value", []string{"floor", "porcupine"}, finally(3, Version{}), inSequence(put("a", 2), del(3, a), get(3, a), get(3, Version{}))},
		{"a value comes back at a new revision", []string{"porcupine"}, finally(4, a.with(4)), inSequence(put("a", 2), put("b", 3), get(4, a.with(4)))},
		{"a swap that succeeds twice", []string{"porcupine"}, finally(4, c), inSequence(put("a", 2), swap(2, "b", 3), swap(2, "c", 4))},
		{"a creation that succeeds twice", []string{"porcupine"}, finally(3, b), inSequence(swap(0, "a", 2), swap(0, "b", 3))},
		{"a swap that fails although it matches", []string{"porcupine"}, finally(2, a), inSequence(put("a", 2), noswap(2, "b", 2, a))},
		{"a value that was never written", []string{"floor", "porcupine"}, finally(2, a), inSequence(put("a", 2), get(2, ver("x", 1)))},
		{"a write that failed is seen", []string{"porcupine"}, finally(3, b), inSequence(put("a", 2), failed(put("b", 3)), get(3, b))},
		{"an unknown write is seen before it is called", []string{"porcupine"}, finally(3, b), inSequence(put("a", 2), get(3, b), unknown(put("b", 3)))},
		{"an unknown write takes effect twice", []string{"porcupine"}, finally(5, b.with(5)), inSequence(unknown(put("b", 3)), get(3, b), put("c", 4), get(5, b.with(5)))},
		{"two writes at one revision", []string{"porcupine", "revision"}, finally(2, a), []Op{at(0, 0, 9, put("a", 2)), at(1, 0, 9, put("b", 2))}},
		{"a final state older than a write", []string{"floor", "missing", "porcupine"}, finally(2, b), inSequence(put("a", 2), put("b", 3))},
		{"a deletion that made no revision", []string{"porcupine"}, finally(2, Version{}), inSequence(put("a", 2), unknown(del(3, a)), get(2, Version{}))},
		{"two values of one revision", []string{"porcupine", "revision"}, finally(2, a), []Op{at(0, 0, 9, put("a", 2)), at(1, 0, 9, get(2, ver("x", 2)))}},
		{"a version newer than its answer", []string{"floor", "porcupine"}, finally(3, b), []Op{
			at(0, 0, 1, put("a", 2)), at(1, 2, 9, put("b", 3)), at(2, 2, 9, get(2, b)),
		}},
		{"the revision goes back for one client", []string{"floor", "porcupine", "session"}, finally(3, b), []Op{
			at(0, 0, 1, put("a", 2)), at(0, 2, 3, put("b", 3)), at(0, 4, 5, get(2, b)),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, tc.want, tc.final, tc.ops...) })
	}
}

// checkFloor compares across keys: an answer about one key dates answers about others.
func TestAnotherKeysRevisionExposesAStaleRead(t *testing.T) {
	check(t, []string{"floor"}, Final{3, map[string]Version{"k": ver("a", 2), "other": ver("x", 3)}},
		at(0, 0, 1, put("a", 2)),
		at(1, 2, 3, Op{Kind: Put, Key: "other", Value: "x", Outcome: OK, Revision: 3}),
		at(2, 4, 5, get(2, ver("a", 2))))
}

// Each write has a revision of the whole store to itself.
func TestWritesOfTwoKeysAtOneRevisionAreFound(t *testing.T) {
	other := at(1, 0, 9, Op{Kind: Put, Key: "other", Value: "x", Outcome: OK, Revision: 2})
	check(t, []string{"revision"}, Final{2, map[string]Version{"k": ver("a", 2), "other": ver("x", 2)}},
		at(0, 0, 9, put("a", 2)), other)
}

// A history that cannot be checked does not pass.
func TestHistoriesBeyondTheLimitsAreRefused(t *testing.T) {
	long := func(n int) []Op {
		ops := []Op{put("a", 2)}
		for len(ops) < n {
			ops = append(ops, get(2, ver("a", 2)))
		}
		return inSequence(ops...)
	}
	wide := func(n int) []Op {
		var ops []Op
		for i := range n {
			ops = append(ops, at(i, 0, 9, get(1, Version{})))
		}
		return ops
	}
	final := finally(2, ver("a", 2))
	check(t, nil, final, long(MaxOps)...)
	check(t, []string{"size"}, final, long(MaxOps+1)...)
	check(t, nil, finally(1, Version{}), wide(MaxClients)...)
	check(t, []string{"size"}, finally(1, Version{}), wide(MaxClients+1)...)
}

// A search that does not end in time is a failure and not a pass. Deletions
// that may take effect at any time, and reads that never show a revision twice,
// make it hard.
func TestASearchThatDoesNotEndIsAViolation(t *testing.T) {
	var ops []Op
	for i := range 20 {
		ops = append(ops, at(i%4, time.Duration(i), 0, unknown(del(0, Version{}))))
		ops = append(ops, at(5+i%4, 100, 200, put(fmt.Sprint("v", i), int64(i+2))))
	}
	ops = append(ops, at(9, 300, 301, get(21, ver("x", 20))), at(9, 302, 303, get(21, Version{})))
	rep := Check(ops, finally(21, Version{}), time.Microsecond)
	if err := rep.Err(); !errors.Is(err, ErrNotLinearizable) || !strings.Contains(err.Error(), string(porcupine.Unknown)) {
		t.Errorf("Check with no time = %v, want %v with %v", err, ErrNotLinearizable, porcupine.Unknown)
	}
}

func TestReportShowsTheFirstViolationsOnly(t *testing.T) {
	rep := &Report{}
	for range maxShown + 5 {
		rep.addf("floor", "k", "stale")
	}
	if err := rep.Err(); !strings.HasSuffix(err.Error(), "and 5 more") || strings.Count(err.Error(), "stale") != maxShown {
		t.Errorf("Err() = %v", err)
	}
}

// A key without an order is drawn.
func TestPicturesAreDrawnOfKeysWithoutAnOrder(t *testing.T) {
	ops := inSequence(put("a", 2), put("b", 3), get(3, ver("a", 2)))
	for i := range ops {
		ops[i].Key = "slot/1"
	}
	rep := Check(ops, Final{3, map[string]Version{"slot/1": ver("b", 3)}}, 0)
	files, err := rep.WritePictures(t.TempDir())
	if err != nil || len(files) != 1 {
		t.Fatalf("WritePictures() = %q, %v, want one file", files, err)
	}
	page, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(page), "put b") {
		t.Errorf("the page has %d bytes without the operations, %v", len(page), err)
	}
	if files, err := Check(inSequence(put("a", 2)), finally(2, ver("a", 2)), 0).WritePictures(t.TempDir()); len(files) > 0 || err != nil {
		t.Errorf("WritePictures() without a violation = %q, %v", files, err)
	}
	if _, err := rep.WritePictures("/nonexistent"); err == nil {
		t.Error("WritePictures() into a missing directory succeeded")
	}
}
