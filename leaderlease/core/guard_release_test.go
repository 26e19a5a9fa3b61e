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
func TestGuardReleasedProbeBindsNoNode(t *testing.T) {
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

// heard is a guard in term 5 that has promised leader 1 something there, by what it has read
// from the given processes.
func heard(t *testing.T, from ...ProcessID) *Guard {
	t.Helper()
	g := newGuard()
	for i, p := range from {
		if !g.Promise(1, 5, Probe{Sent: 500*sec + Instant(i), Duration: time.Second}, p, sec) {
			t.Fatalf("Promise() of process %x = false, want true", p)
		}
	}
	g.SetTerm(5)
	g.Grant(1, 5, sec)
	return g
}

// A death voids what was promised to the very process that has died, and nothing else (V8).
func TestGuardProcessDied(t *testing.T) {
	for _, tt := range []struct {
		name   string
		from   []ProcessID
		leader uint64
		died   ProcessID
		term   uint64 // of raft
		want   bool
	}{
		{"the process that it was made to", []ProcessID{{7}}, 1, ProcessID{7}, 5, true},
		{"by several probes of it", []ProcessID{{7}, {7}, {7}}, 1, ProcessID{7}, 5, true},
		{"a former process of the leader's", []ProcessID{{7}}, 1, ProcessID{6}, 5, false},
		{"a process whose ID differs in the last byte", []ProcessID{{0: 7, 15: 1}}, 1, ProcessID{0: 7, 15: 2}, 5, false},
		{"a process of another member", []ProcessID{{7}}, 2, ProcessID{7}, 5, false},
		{"a process of no member", []ProcessID{{7}}, 0, ProcessID{7}, 5, false},
		{"a process that is not known", []ProcessID{{7}}, 1, ProcessID{}, 5, false},
		{"the promise is to one that is not known", []ProcessID{{}}, 1, ProcessID{}, 5, false},
		{"two processes have sent probes, the first has died", []ProcessID{{6}, {7}}, 1, ProcessID{6}, 5, false},
		{"two processes have sent probes, the second has died", []ProcessID{{6}, {7}}, 1, ProcessID{7}, 5, false},
		{"one that is not known has sent some", []ProcessID{{7}, {}}, 1, ProcessID{7}, 5, false},
		{"one that was not known has sent some before", []ProcessID{{}, {7}, {7}}, 1, ProcessID{7}, 5, false},
		{"raft has gone on to a later term", []ProcessID{{7}}, 1, ProcessID{7}, 6, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := heard(t, tt.from...)
			g.SetTerm(tt.term)
			rel, got := g.ProcessDied(tt.leader, tt.died)
			want := Release{}
			if tt.want {
				want = Release{Term: 5, At: Forever}
			}
			if got != tt.want || rel != want {
				t.Errorf("ProcessDied(%d, %x) = %+v, %t, want %+v, %t", tt.leader, tt.died, rel, got, want, tt.want)
			}
			if g.Bound(1500*ms) == tt.want || g.Owes(1500*ms) == tt.want {
				t.Errorf("Bound() = %t, Owes() = %t, want %t", g.Bound(1500*ms), g.Owes(1500*ms), !tt.want)
			}
			if passed, ok := g.Released(9); ok != tt.want || passed != want {
				t.Errorf("Released(9) = %+v, %t, want %+v, %t: forced votes pass it on", passed, ok, want, tt.want)
			}
		})
	}
}

// Raft may not have heard of the term yet in which a promise was made.
func TestDeathBeforeRaftKnowsTheTerm(t *testing.T) {
	g := newGuard()
	g.SetTerm(4)
	g.Promise(1, 5, Probe{Sent: sec, Duration: time.Second}, ProcessID{7}, sec)
	if rel, ok := g.ProcessDied(1, ProcessID{7}); !ok || rel.Term != 5 || g.Bound(sec) {
		t.Errorf("ProcessDied() = %+v, %t, bound: %t, want a release of term 5", rel, ok, g.Bound(sec))
	}
}

// What binds after a restart, or a step of the clock, was promised to an unknown process.
func TestNoDeathLiftsTheHold(t *testing.T) {
	g := NewGuard(sec, 1, 2*time.Second, time.Second)
	g.Promise(1, 5, Probe{Sent: 500 * sec, Duration: time.Second}, ProcessID{7}, 1500*ms)
	if _, ok := g.ProcessDied(1, ProcessID{7}); !ok || !g.Bound(2*sec-1) || g.Bound(2*sec) {
		t.Errorf("ProcessDied() = %t, bound in the last instant of the hold: %t, after it: %t, want true, true, false",
			ok, g.Bound(2*sec-1), g.Bound(2*sec))
	}
	g.StartOver(3 * sec)
	if g.ProcessDied(1, ProcessID{7}); !g.Bound(5*sec - 1) {
		t.Error("Bound() after a step of the clock and a death = false, want true")
	}
}

// Heartbeats of a process that has died may be read after its death, in the term that it was
// known to lead or in a later one. They bind no node.
func TestTheDeadArePromisedNothing(t *testing.T) {
	g := heard(t, ProcessID{7})
	g.ProcessDied(1, ProcessID{7})
	g.ProcessDied(1, ProcessID{7}) // once more
	probe := Probe{Sent: 900 * sec, Duration: time.Second}
	for _, tt := range []struct {
		name string
		term uint64
		from ProcessID
		want bool
	}{
		{"of its term", 5, ProcessID{7}, false},
		{"of its term, by a process that is not known", 5, ProcessID{}, false},
		{"of an unknown later term", 6, ProcessID{7}, false},
		{"of the next process", 7, ProcessID{8}, true},
	} {
		if got := g.Promise(1, tt.term, probe, tt.from, sec); got != tt.want {
			t.Errorf("%s: Promise() = %t, want %t", tt.name, got, tt.want)
		}
	}
	// It is remembered also where it was the leader of nothing, and others have died since.
	for p := range byte(maxDeaths - 1) {
		g.ProcessDied(3, ProcessID{20 + p})
		g.ProcessDied(3, ProcessID{20 + p})
	}
	if g.Promise(1, 8, probe, ProcessID{7}, sec) {
		t.Errorf("Promise() to a process that has died before %d others = true, want false", maxDeaths-1)
	}
	if g.ProcessDied(3, ProcessID{30}); !g.Promise(1, 8, probe, ProcessID{7}, sec) {
		t.Error("Promise() = false, want true: so many are not remembered")
	}
}

// The next promise is to another process, whatever the one before was to.
func TestDeathOfTheLeaderBefore(t *testing.T) {
	g := heard(t, ProcessID{6}, ProcessID{7})
	g.Promise(2, 6, Probe{Sent: 1, Duration: time.Second}, ProcessID{9}, sec)
	if _, ok := g.ProcessDied(1, ProcessID{7}); ok || !g.Bound(sec) {
		t.Errorf("ProcessDied() of the leader before = %t, bound: %t, want false, true", ok, g.Bound(sec))
	}
	if rel, ok := g.ProcessDied(2, ProcessID{9}); !ok || rel.Term != 6 {
		t.Errorf("ProcessDied() = %+v, %t, want a release of term 6", rel, ok)
	}
}

// A probe that is refused contributes to no promise.
func TestRefusedProbesAreOfNoProcess(t *testing.T) {
	g := heard(t, ProcessID{7})
	if g.Promise(1, 5, Probe{Sent: 1, Duration: time.Hour}, ProcessID{8}, sec) {
		t.Fatal("Promise() of an hour = true, want false")
	}
	if _, ok := g.ProcessDied(1, ProcessID{7}); !ok {
		t.Error("ProcessDied() = false, want true")
	}
}

// A death of a process of one member refuses no promise to a process of another member, even if
// both have the same ID.
func TestTheDeadAreOfOneMember(t *testing.T) {
	g := heard(t, ProcessID{7})
	g.ProcessDied(2, ProcessID{7})
	if !g.Promise(1, 5, Probe{Sent: 600 * sec, Duration: time.Second}, ProcessID{7}, sec) {
		t.Error("Promise() to process 7 of member 1 after the death of process 7 of member 2 = false, want true")
	}
	if g.Promise(2, 6, Probe{Sent: 600 * sec, Duration: time.Second}, ProcessID{7}, sec) {
		t.Error("Promise() to process 7 of member 2, which is dead = true, want false")
	}
}
