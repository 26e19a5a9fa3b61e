package core

import (
	"testing"
	"time"
)

// The first term that there is can be led, promised to and granted in.
func TestFirstTerm(t *testing.T) {
	g := newGuard()
	if !g.Promise(1, 1, Probe{Sent: sec, Duration: time.Second}, ProcessID{}, sec) {
		t.Error("Promise() in term 1 = false, want true")
	}
	grant, ok := g.Grant(1, 1, sec)
	if !ok {
		t.Error("Grant() in term 1 = none, want one")
	}
	l := NewLease(testParams)
	l.SetVoters(voters(1, 2))
	l.Lead(1, sec)
	if !l.Count(2, 1, grant, sec) {
		t.Errorf("Count(%+v) in term 1 = false, want true", grant)
	}
	g.Admit(&Release{Term: 1, At: sec}, sec)
	if _, ok := g.Released(2); !ok {
		t.Error("Released(2) = none, want the release of term 1")
	}
}

// A doubted clock is trusted again when it has looked good for as long as it took to
// find it bad: at the end of that window, not before. A window that has seen nothing
// wrong is ended at its end.
func TestRateWindowEdges(t *testing.T) {
	const begin = 1000 * sec
	p := Params{Duration: time.Second, MaxClockSkew: 200 * time.Millisecond}
	at := func(i Instant) sample { return sample{sent: i - 2, received: i, reading: i - 1, incarnation: 1} }
	for _, tt := range []struct {
		name    string
		suspect bool
		clear   time.Duration
		after   time.Duration
		doubted bool
		begun   bool // a new window
	}{
		{"last instant of doubt", true, 5 * time.Second, 5*time.Second - 1, true, false},
		{"trusted again", true, 5 * time.Second, 5 * time.Second, false, false},
		{"last instant of a window", false, 0, rateMaxWindow*time.Second - 1, false, false},
		{"its end", false, 0, rateMaxWindow * time.Second, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := rateWatch{anchor: at(begin), suspect: tt.suspect, clear: tt.clear}
			w.observe(at(begin.Add(tt.after)), p)
			if w.suspect != tt.doubted {
				t.Errorf("doubted after %v = %t, want %t", tt.after, w.suspect, tt.doubted)
			}
			if begun := w.anchor != at(begin); begun != tt.begun {
				t.Errorf("a new window after %v = %t, want %t", tt.after, begun, tt.begun)
			}
		})
	}
}

// A clock found bad is doubted for the window it took, in its limits.
func TestRateDoubtsForTheWindow(t *testing.T) {
	const begin = 1000 * sec
	p := Params{Duration: time.Second, MaxClockSkew: 200 * time.Millisecond}
	for _, tt := range []struct {
		name         string
		window, want time.Duration
	}{
		{"at least", time.Second, rateClearWindow * time.Second},
		{"one instant more", rateClearWindow*time.Second + 1, rateClearWindow*time.Second + 1},
		{"as long as it took", 10*time.Second + 1, 10*time.Second + 1},
		{"one instant less", rateMaxClear*time.Second - 1, rateMaxClear*time.Second - 1},
		{"at most", time.Hour, rateMaxClear * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := rateWatch{anchor: sample{sent: begin, received: begin, reading: begin, incarnation: 1}}
			end := begin.Add(tt.window)
			w.observe(sample{sent: end, received: end, reading: begin, incarnation: 1}, p)
			if !w.suspect || w.clear != tt.want {
				t.Errorf("a clock that stood still for %v: doubted %t for %v, want %v", tt.window, w.suspect, w.clear, tt.want)
			}
		})
	}
}
