package wire

import (
	"testing"
	"time"
)

func TestALockHasOneHolderAndTokensThatGrow(t *testing.T) {
	type step struct {
		token, kept uint64
		end         bool // of a tenure
		want        bool
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"one after the other", []step{{token: 1, want: true}, {end: true}, {token: 2, want: true}}},
		{"two at once", []step{{token: 1, want: true}, {token: 2, want: false}}},
		{"the token of the one before", []step{{token: 2, want: true}, {end: true}, {token: 2, want: false}}},
		{"an older token", []step{{token: 2, want: true}, {end: true}, {token: 1, want: false}}},
		{"its own token, after a release that failed", []step{{token: 2, want: true}, {end: true}, {token: 2, kept: 2, want: true}}},
		{"its own token, after another holder's", []step{{token: 2, want: true}, {end: true}, {token: 3, want: true}, {end: true}, {token: 2, kept: 2, want: false}}},
		{"no token", []step{{token: 0, want: false}}},
	} {
		var lock tenure
		for i, s := range c.steps {
			if s.end {
				lock.end()
				continue
			}
			if got := lock.begin(s.token, s.kept); got != s.want {
				t.Errorf("%s: step %d, begin(%d, %d) = %v, want %v", c.name, i, s.token, s.kept, got, s.want)
			}
		}
	}
}

// The end of a measurement is no failure, for those who wait neither: clients go
// on until the last instant, again and again.
func TestTheEndOfAMeasurementFailsNoLock(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	endpoint := serve(t)
	for _, shared := range []bool{false, true} {
		l, err := NewLockers(t.Context(), []string{endpoint}, 4, shared)
		if err != nil {
			t.Fatal(err)
		}
		var acquired, released, runs int64
		for d := 20 * time.Millisecond; runs < 10 || acquired == 0 && d < longest; runs++ {
			r, err := l.Measure(t.Context(), Times{Duration: d})
			if err != nil || r.Acquire.Failed+r.Release.Failed+r.Overlaps > 0 {
				t.Fatalf("shared %v: %d overlaps, failures %v and %v, %v, want none", shared, r.Overlaps, r.Acquire.Errors, r.Release.Errors, err)
			}
			acquired, released = acquired+r.Acquire.Latency.TotalCount(), released+r.Release.Latency.TotalCount()
			if acquired == 0 { // a busy machine needs longer
				d *= 2
			}
		}
		// A lock taken before the counting began is released in it.
		if acquired == 0 || released < acquired || released > acquired+4*runs {
			t.Errorf("shared %v: %d acquired and %d released, want each to be given back", shared, acquired, released)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
