package demo

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/kvnode/server/status"
)

// verdicts tests a check: nil where it should pass.
type verdicts []struct {
	name string
	err  error
	ok   bool
}

func (v verdicts) check(t *testing.T) {
	t.Helper()
	for _, c := range v {
		if (c.err == nil) != c.ok {
			t.Errorf("%s: %v, want it to pass: %v", c.name, c.err, c.ok)
		}
	}
}

func instant(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }

func read(term uint64, called, returned int) leased {
	return leased{term, instant(called), instant(returned)}
}

func TestLeasesOfTwoTermsMayNotOverlap(t *testing.T) {
	verdicts{
		{"none", disjoint(nil), true},
		{"one after the other", disjoint([]leased{read(2, 0, 1), read(3, 2, 3)}), true},
		{"under way at the same time", disjoint([]leased{read(2, 0, 9), read(3, 2, 3)}), true},
		{"asked at the instant of the answer", disjoint([]leased{read(3, 0, 5), read(2, 5, 6)}), true},
		{"asked after it", disjoint([]leased{read(3, 0, 5), read(2, 6, 7)}), false},
		{"long after it, with others between", disjoint([]leased{read(2, 50, 51), read(4, 0, 1), read(4, 20, 30), read(3, 1, 2)}), false},
	}.check(t)
}

func TestWokenLeaderMayNotShowWhatWasOverwritten(t *testing.T) {
	key := napKey{written: written{"k", []string{"new", "newer"}}, old: "old"}
	tallied := func(values ...string) error {
		var all tally
		for _, v := range values {
			s := shown{key: key, value: v}
			if v == "error" {
				s.err = errFalse
			}
			all.add(s)
		}
		return all.linearizable()
	}
	verdicts{
		{"new values", tallied("new", "new", "newer"), true},
		{"errors", tallied("error", "new"), true},
		{"one old value", tallied("new", "old", "error"), false},
		{"nothing at all", tallied("new", ""), false},
	}.check(t)
}

func TestNextLeaderMayNotComeBeforeThePromiseEnds(t *testing.T) {
	verdicts{
		{"seen at its end", tooEarly(instant(900), instant(900)), true},
		{"seen before", tooEarly(instant(899), instant(900)), false},
	}.check(t)
}

// sightings keep the latest end of a lease that an answer proves, counted from the
// call: the server read its lease after that.
func TestProberKnowsUntilWhenTheLeaseServed(t *testing.T) {
	var s sightings
	s.add(kvclient.Answer{Term: 2, Called: instant(0), Returned: instant(50), Served: kvclient.Served{Remaining: 700 * time.Millisecond}})
	s.add(kvclient.Answer{Term: 2, Called: instant(60), Returned: instant(61), Served: kvclient.Served{Remaining: 600 * time.Millisecond}})
	if want := instant(700); !s.until.Equal(want) || s.count != 2 || !s.first.Called.Equal(instant(0)) || !s.last.Called.Equal(instant(60)) {
		t.Errorf("sightings = %+v, want 2 until %v", s, want)
	}
}

func TestOldLeaderMayNotServeOnceTheNextDoes(t *testing.T) {
	by := func(term uint64, called, returned int) sightings {
		var s sightings
		s.add(kvclient.Answer{Term: term, Called: instant(called), Returned: instant(returned)})
		return s
	}
	verdicts{
		{"before", inTurn(by(3, 0, 1), by(4, 2, 3)), true},
		{"after", inTurn(by(3, 4, 5), by(4, 2, 3)), false},
		{"after it was elected again", inTurn(by(5, 4, 5), by(4, 2, 3)), true},
	}.check(t)
}

func TestComparisonNeedsReadsOfBothKinds(t *testing.T) {
	of := func(reads, underLease, mistaken int) *comparison {
		return &comparison{lease: make(latencies, reads), underLease: underLease, mistaken: mistaken}
	}
	verdicts{
		{"half under the lease", of(100, 50, 0).undisturbed(), true},
		{"less than half", of(100, 49, 0).undisturbed(), false},
		{"too few", of(minPairs-1, minPairs-1, 0).undisturbed(), false},
		{"ReadIndex by quorum", of(100, 100, 0).distinct(), true},
		{"ReadIndex under the lease", of(100, 100, 1).distinct(), false},
	}.check(t)
}

func TestMembersMustHoldTheSame(t *testing.T) {
	verdicts{
		{"equal", allEqual([]hash{{"n1", 7, 0}, {"n2", 7, 0}, {"n3", 7, 0}}), true},
		{"other data", allEqual([]hash{{"n1", 7, 0}, {"n2", 7, 0}, {"n3", 8, 0}}), false},
		{"other history", allEqual([]hash{{"n1", 7, 0}, {"n2", 7, 3}, {"n3", 7, 0}}), false},
	}.check(t)
}

func TestSomethingMustHaveBeenServedUnderALease(t *testing.T) {
	verdicts{
		{"some", someLease(map[string]int{"lease": 1, "log": 5}), true},
		{"none", someLease(map[string]int{"read_index": 9}), false},
	}.check(t)
}

// history returns the history of two clients that write and read one key in turn.
func history(lastRead linz.Version, revision int64) []linz.Op {
	key := keyPrefix + "k"
	return []linz.Op{
		{Client: 0, Kind: linz.Put, Key: key, Value: "old", Call: 1, Return: 2, Outcome: linz.OK, Revision: 2},
		{Client: 0, Kind: linz.Put, Key: key, Value: "new", Call: 3, Return: 4, Outcome: linz.OK, Revision: 3},
		{Client: 1, Kind: linz.Get, Key: key, Call: 5, Return: 6, Outcome: linz.OK, Revision: revision, Seen: lastRead},
	}
}

func judged(t *testing.T, ops []linz.Op) (string, error) {
	t.Helper()
	final := linz.Final{Revision: 3, Keys: map[string]linz.Version{keyPrefix + "k": {Value: "new", Mod: 3}}}
	return playScenes(t.Context(), func(s *script) []scene {
		p := &play{script: s, cast: newCast()}
		return []scene{{"Verdict", "Why.", func(context.Context) error {
			p.judge(ops, final)
			return nil
		}}}
	})
}

func TestVerdictOnALinearizableHistory(t *testing.T) {
	if out, err := judged(t, history(linz.Version{Value: "new", Mod: 3}, 3)); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// The negative control of the verdict: one stale read among correct answers.
func TestVerdictOnAPlantedStaleRead(t *testing.T) {
	out, err := judged(t, history(linz.Version{Value: "old", Mod: 2}, 2))
	if !errors.Is(err, ErrStory) || !strings.Contains(out, "✗ the history") || strings.Contains(out, "✓") {
		t.Errorf("error %v, want ErrStory:\n%s", err, out)
	}
}

func TestVerdictOnNothing(t *testing.T) {
	if out, err := judged(t, nil); !errors.Is(err, ErrStory) {
		t.Errorf("error %v, want ErrStory:\n%s", err, out)
	}
}

func TestQuantiles(t *testing.T) {
	var l latencies
	for i := 100; i > 0; i-- {
		l = append(l, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := l.quantile(q); got != want {
			t.Errorf("quantile(%v) = %d, want %d", q, got, want)
		}
	}
	if got := latencies(nil).quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing = %v, want 0", got)
	}
}

func TestStatusLineSumsUpTheCluster(t *testing.T) {
	leads := func(term uint64) status.Report {
		return status.Report{
			Role: "leader", Term: term, Applied: 12, Reads: map[string]uint64{"lease": 3},
			Lease: status.Lease{State: "valid", RemainingMS: 712.4, MarginMS: 180},
		}
	}
	follows := status.Report{Role: "follower", Term: 4, Reads: map[string]uint64{"lease": 1, "forwarded": 9}}
	for _, c := range []struct {
		name  string
		views []view
		want  string
	}{
		{
			"all answer",
			[]view{{"n1", true, leads(4), nil}, {"n2", true, follows, nil}},
			"n1 leads term 4 | lease valid, 712 ms + 180 margin | applied 12 | reads: forwarded 9, lease 4",
		},
		{
			"the old leader does not know yet",
			[]view{{"n1", true, leads(4), nil}, {"n2", true, leads(5), nil}},
			"n2 leads term 5 | lease valid, 712 ms + 180 margin | applied 12 | reads: lease 6",
		},
		{
			"no member leads",
			[]view{{"n1", true, status.Report{}, errFalse}, {"n2", false, status.Report{}, errFalse}},
			"no leader | n1 does not answer | n2 does not run",
		},
	} {
		if got := summary(c.views); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--pace", "-1"}, {"--pace", "NaN"}, {"--pace", "1e9"}, {"--pace", "slow"}, {"extra"}} {
		cmd := Command()
		cmd.SetArgs(args)
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		if err := cmd.Execute(); err == nil {
			t.Errorf("demo %q was run", args)
		}
	}
}

// A member that does not start must not block the story.
func TestWaitingEndsAndSaysWhy(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	err := until(ctx, func(context.Context) error {
		cancel(errors.New("n2 ended"))
		return errFalse
	})
	if !errors.Is(err, errFalse) || !strings.Contains(err.Error(), "n2 ended") {
		t.Errorf("until: %v, want both reasons", err)
	}
}
