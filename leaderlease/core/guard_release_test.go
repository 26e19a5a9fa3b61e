package core

import (
	"testing"
	"time"
)

// A release covers the promises that its leader has stopped to rely on (L6).
func TestGuardRelease(t *testing.T) {
	for _, tt := range []struct {
		name string
		rel  *Release
		want bool
	}{
		{"none", nil, false},
		{"at the send instant of the newest promise", &Release{Term: 5, At: 500 * sec}, true},
		{"just before it", &Release{Term: 5, At: 500*sec - 1}, false},
		{"after it", &Release{Term: 5, At: 501 * sec}, true},
		{"by a later leader", &Release{Term: 6, At: 1}, true},
		{"by an earlier leader", &Release{Term: 4, At: 501 * sec}, false},
		{"without an instant", &Release{Term: 5}, false},
		{"of a later leader without an instant", &Release{Term: 6}, false},
		{"with a negative instant", &Release{Term: 6, At: -1}, false},
		{"without a term", &Release{At: 501 * sec}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := boundGuard(t)
			g.Grant(1, 5, sec)
			if got := g.Admit(tt.rel, 1500*ms); got != tt.want {
				t.Errorf("Admit(%+v) = %t, want %t", tt.rel, got, tt.want)
			}
			if got := g.Bound(1500 * ms); got == tt.want {
				t.Errorf("Bound() after Admit(%+v) = %t, want %t", tt.rel, got, !tt.want)
			}
			if got := g.Owes(1500 * ms); got == tt.want {
				t.Errorf("Owes() after Admit(%+v) = %t, want %t", tt.rel, got, !tt.want)
			}
			if _, got := g.Grant(1, 5, 1500*ms); got == tt.want {
				t.Errorf("Grant() after Admit(%+v) = %t, want %t: what is void is not granted", tt.rel, got, !tt.want)
			}
		})
	}
}

// A release speaks of promises; what a node forgot by its restart it cannot
// know (V6).
func TestNoReleaseLiftsTheHold(t *testing.T) {
	g := NewGuard(sec, 1, 2*time.Second, time.Second)
	g.Promise(1, 5, Probe{Sent: 500 * sec, Duration: time.Second}, ProcessID{}, 1500*ms)
	rel := &Release{Term: 5, At: 500 * sec}
	if g.Admit(rel, 2*sec-1) {
		t.Error("Admit() in the last instant of the hold = true, want false")
	}
	if !g.Admit(rel, 2*sec) {
		t.Error("Admit() after the hold = false, want true: the promise was released")
	}
}

// The release that a transferee passes on is the newest, and belongs to a
// campaign in a later term.
func TestGuardTransferee(t *testing.T) {
	g := newGuard()
	if r, ok := g.Released(9); ok {
		t.Errorf("Released(9) = %+v before any, want none", r)
	}
	for _, step := range []struct {
		name string
		rel  Release
		want Release
	}{
		{"the first", Release{Term: 5, At: 100}, Release{Term: 5, At: 100}},
		{"an earlier one of that term", Release{Term: 5, At: 99}, Release{Term: 5, At: 100}},
		{"a later one of that term", Release{Term: 5, At: 101}, Release{Term: 5, At: 101}},
		{"a late one of an earlier term", Release{Term: 4, At: 999}, Release{Term: 5, At: 101}},
		{"one of a later term, by another clock", Release{Term: 6, At: 7}, Release{Term: 6, At: 7}},
	} {
		g.Admit(&step.rel, sec)
		if got, ok := g.Released(9); got != step.want || !ok {
			t.Errorf("%s: Released(9) = %+v, %t, want %+v", step.name, got, ok, step.want)
		}
	}
	if r, ok := g.Released(6); ok {
		t.Errorf("Released(6) = %+v, want none: nobody campaigns in the term he released", r)
	}
	if _, ok := g.Released(7); !ok {
		t.Error("Released(7) = none, want the release of term 6")
	}
}

// A probe that the leader has released already is not promised to when it
// arrives late: the leader would not count it, and a transfer would wait for it.
func TestGuardReleasedProbeBindsNobody(t *testing.T) {
	g := newGuard()
	g.Admit(&Release{Term: 5, At: 100}, sec)
	for _, tc := range []struct {
		name string
		term uint64
		sent Instant
		want bool
	}{
		{"sent at the release", 5, 100, false},
		{"sent after it", 5, 101, true},
		{"of another term", 6, 7, true},
	} {
		if got := g.Promise(1, tc.term, Probe{Sent: tc.sent, Duration: time.Second}, ProcessID{}, sec); got != tc.want {
			t.Errorf("%s: Promise() = %t, want %t", tc.name, got, tc.want)
		}
	}
}
