package core

import (
	"math"
	"testing"
	"time"
)

// newGuard returns the guard of a node that promises up to two seconds and has
// no past.
func newGuard() *Guard { return NewGuard(sec, 1, 2*time.Second, 0) }

// bound returns a guard that has promised leader 1 in term 5, at 1s and for a
// probe sent at 500s on the leader's clock, to be bound until 2s.
func boundGuard(t *testing.T) *Guard {
	t.Helper()
	g := newGuard()
	if !g.Promise(1, 5, Probe{Sent: 500 * sec, Duration: time.Second}, ProcessID{}, sec) {
		t.Fatal("Promise() = false, want true")
	}
	return g
}

func TestGuardPromiseRefuses(t *testing.T) {
	good := Probe{Sent: 500 * sec, Duration: time.Second}
	for _, tt := range []struct {
		name   string
		leader uint64
		term   uint64
		p      Probe
		now    Instant
		want   bool
	}{
		{"a leader of the node's term", 1, 4, good, sec, true},
		{"a leader of a later term", 1, 9, good, sec, true},
		{"a deposed leader", 1, 3, good, sec, false},
		{"no leader", 0, 4, good, sec, false},
		{"no term", 1, 0, good, sec, false},
		{"no send instant", 1, 4, Probe{Duration: time.Second}, sec, false},
		{"a negative send instant", 1, 4, Probe{Sent: -1, Duration: time.Second}, sec, false},
		{"the first send instant", 1, 4, Probe{Sent: 1, Duration: time.Second}, sec, true},
		{"no duration", 1, 4, Probe{Sent: sec}, sec, false},
		{"a negative duration", 1, 4, Probe{Sent: sec, Duration: -1}, sec, false},
		{"the shortest promise", 1, 4, Probe{Sent: sec, Duration: 1}, sec, true},
		{"MaxPromise", 1, 4, Probe{Sent: sec, Duration: 2 * time.Second}, sec, true},
		{"more than MaxPromise", 1, 4, Probe{Sent: sec, Duration: 2*time.Second + 1}, sec, false},
		{"the longest duration", 1, 4, Probe{Sent: sec, Duration: math.MaxInt64}, sec, false},
		{"no clock", 1, 4, good, 0, false},
		{"a clock that reads Forever", 1, 4, good, Forever, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuard()
			g.SetTerm(4)
			if got := g.Promise(tt.leader, tt.term, tt.p, ProcessID{}, tt.now); got != tt.want {
				t.Errorf("Promise(%d, %d, %+v, %d) = %t, want %t", tt.leader, tt.term, tt.p, tt.now, got, tt.want)
			}
			if got := g.Bound(sec); got != tt.want {
				t.Errorf("Bound() = %t, want %t: bound if and only if the promise was made", got, tt.want)
			}
			if _, got := g.Grant(tt.leader, tt.term, sec); got != tt.want {
				t.Errorf("Grant() = %t, want %t: granted if and only if the promise was made", got, tt.want)
			}
		})
	}
}

func TestGuardBound(t *testing.T) {
	hold := func(*testing.T) *Guard { return NewGuard(sec, 1, 2*time.Second, time.Second) }
	both := func(*testing.T) *Guard {
		g := NewGuard(sec, 1, 2*time.Second, 500*time.Millisecond)
		g.Promise(1, 5, Probe{Sent: sec, Duration: time.Second}, ProcessID{}, sec)
		return g
	}
	shorter := func(*testing.T) *Guard {
		g := NewGuard(sec, 1, 2*time.Second, 2*time.Second)
		g.Promise(1, 5, Probe{Sent: sec, Duration: time.Second}, ProcessID{}, sec)
		return g
	}
	none := func(*testing.T) *Guard { return newGuard() }
	late := func(*testing.T) *Guard {
		g := newGuard()
		g.Promise(1, 5, Probe{Sent: sec, Duration: 2 * time.Second}, ProcessID{}, maxReading-sec)
		return g
	}
	for _, tt := range []struct {
		name  string
		guard func(*testing.T) *Guard
		now   Instant
		want  bool
	}{
		{"a node without a past is free at once", none, sec, false},
		{"last instant of the promise", boundGuard, 2*sec - 1, true},
		{"the promise has ended", boundGuard, 2 * sec, false},
		{"a clock that cannot be read does not end a promise", boundGuard, 0, true},
		{"last instant of the hold", hold, 2*sec - 1, true},
		{"the hold has ended", hold, 2 * sec, false},
		{"a clock that cannot be read does not end the hold", hold, 0, true},
		{"the hold has ended, the promise has not", both, 2*sec - 1, true},
		{"both have ended", both, 2 * sec, false},
		{"the promise has ended, the hold has not", shorter, 3*sec - 1, true},
		{"a promise beyond the end of the clock", late, maxReading - 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := tt.guard(t)
			if got := g.Bound(tt.now); got != tt.want {
				t.Errorf("Bound(%d) = %t, want %t", tt.now, got, tt.want)
			}
			if got := g.Admit(nil, tt.now); got == tt.want {
				t.Errorf("Admit(nil, %d) = %t, want %t", tt.now, got, !tt.want)
			}
		})
	}
}

// A promise once made is never shortened by what arrives later (V1, V7).
func TestGuardPromiseOnlyGrows(t *testing.T) {
	g := newGuard()
	for _, step := range []struct {
		name   string
		leader uint64
		term   uint64
		probe  Probe
		now    Instant
		made   bool
		until  Instant
		sent   Instant // what a grant in term says
		dur    time.Duration
	}{
		{"the first", 1, 5, Probe{500, 2 * time.Second}, sec, true, 3 * sec, 500, 2 * time.Second},
		{"a newer one that asks for less", 1, 5, Probe{600, time.Second}, 1100 * ms, true, 3 * sec, 600, time.Second},
		{"an older one, late, binds for longer and is not named", 1, 5, Probe{550, 2 * time.Second}, 1200 * ms, true, 3200 * ms, 600, time.Second},
		{"a repeated one binds for longer", 1, 5, Probe{600, time.Second}, 2500 * ms, true, 3500 * ms, 600, time.Second},
		{"a repeated one that asks for less is granted as such", 1, 5, Probe{600, time.Millisecond}, 2500 * ms, true, 3500 * ms, 600, time.Millisecond},
		{"another leader in that term is not from raft", 2, 5, Probe{700, 2 * time.Second}, 2600 * ms, false, 3500 * ms, 0, 0},
		{"a later leader, by another clock", 2, 6, Probe{7, time.Second}, 2 * sec, true, 3500 * ms, 7, time.Second},
		{"the earlier leader is deposed", 1, 5, Probe{900, 2 * time.Second}, 3 * sec, false, 3500 * ms, 0, 0},
		{"the same leader in a later term, by a clock that began anew", 2, 7, Probe{5, time.Second}, 3 * sec, true, 4 * sec, 5, time.Second},
	} {
		if got := g.Promise(step.leader, step.term, step.probe, ProcessID{}, step.now); got != step.made {
			t.Errorf("%s: Promise() = %t, want %t", step.name, got, step.made)
		}
		if got := step.now.Add(g.Info(step.now).Remaining); got != step.until {
			t.Errorf("%s: bound until %d, want %d", step.name, got, step.until)
		}
		got, ok := g.Grant(step.leader, step.term, step.now)
		if got.Sent != step.sent || got.Duration != step.dur || ok != step.made {
			t.Errorf("%s: Grant() = %+v, %t, want sent %d for %v", step.name, got, ok, step.sent, step.dur)
		}
	}
}

// A grant is a promise to that leader in that term, never an echo (V2).
func TestGuardGrant(t *testing.T) {
	want := Grant{Sent: 500 * sec, Duration: time.Second, Reading: 1500 * ms, Incarnation: 1}
	for _, tt := range []struct {
		name         string
		leader, term uint64
		now          Instant
		want         bool
	}{
		{"to the leader that asked", 1, 5, 1500 * ms, true},
		{"to another leader", 2, 5, 1500 * ms, false},
		{"in another term", 1, 6, 1500 * ms, false},
		{"in an earlier term", 1, 4, 1500 * ms, false},
		{"to nobody", 0, 0, 1500 * ms, false},
		{"without a clock", 1, 5, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := boundGuard(t).Grant(tt.leader, tt.term, tt.now)
			if ok != tt.want || ok && got != want {
				t.Errorf("Grant(%d, %d, %d) = %+v, %t, want %+v, %t", tt.leader, tt.term, tt.now, got, ok, want, tt.want)
			}
		})
	}
	if g, ok := new(Guard).Grant(0, 0, sec); ok {
		t.Errorf("zero Guard: Grant() = %+v, want none", g)
	}
}

// A node that votes forgets its term's earlier leader at once, and his late
// heartbeats bind no node (V1).
func TestGuardKnowsItsTerm(t *testing.T) {
	g := boundGuard(t)
	g.SetTerm(6)
	if g.Promise(1, 5, Probe{Sent: 600 * sec, Duration: time.Second}, ProcessID{}, 3*sec) {
		t.Error("Promise() to a leader of term 5 = true in term 6, want false")
	}
	g.SetTerm(4)
	if g.Promise(1, 5, Probe{Sent: 600 * sec, Duration: time.Second}, ProcessID{}, 3*sec) {
		t.Error("Promise() to a leader of term 5 = true after SetTerm(4), want false: terms do not fall")
	}
	// The promise itself survives the term (V7).
	if !g.Bound(2*sec - 1) {
		t.Error("Bound() = false in a later term, want true")
	}
}

// No lease relies on a promise before its grant has left (V5).
func TestGuardOwes(t *testing.T) {
	g := boundGuard(t)
	if g.Owes(sec) {
		t.Error("Owes() = true before any grant, want false")
	}
	g.Grant(1, 5, sec)
	if !g.Owes(2*sec-1) || g.Owes(2*sec) {
		t.Errorf("Owes() = %t, %t around the granted end, want true, false", g.Owes(2*sec-1), g.Owes(2*sec))
	}
	g.Promise(1, 5, Probe{Sent: 501 * sec, Duration: time.Second}, ProcessID{}, 1500*ms)
	if g.Owes(2 * sec) {
		t.Error("Owes() = true past the granted end, want false: the longer promise has not been granted")
	}
	if !g.Bound(2 * sec) {
		t.Error("Bound() = false past the granted end, want true: the longer promise was made")
	}
	g.Grant(1, 5, 1600*ms)
	if !g.Owes(2500*ms - 1) {
		t.Error("Owes() = false before the newer granted end, want true")
	}
	held := NewGuard(sec, 1, 2*time.Second, time.Second)
	if !held.Owes(2*sec-1) || held.Owes(2*sec) {
		t.Errorf("Owes() = %t, %t around the end of the hold, want true, false", held.Owes(2*sec-1), held.Owes(2*sec))
	}
}

// A clock that went back says nothing about earlier instants: the node holds
// as after a restart, for what it may have promised before or since its start.
func TestGuardStartsOver(t *testing.T) {
	for _, tt := range []struct {
		name string
		hold time.Duration
		want Instant
	}{
		{"for MaxPromise", 0, 2500 * ms},
		{"for MaxPromise, if the restart hold was shorter", time.Second, 2500 * ms},
		{"for the restart hold, if that was longer", 3 * time.Second, 3500 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewGuard(100*sec, 1, 2*time.Second, tt.hold)
			g.Promise(1, 5, Probe{Sent: sec, Duration: time.Second}, ProcessID{}, 100*sec)
			g.Grant(1, 5, 100*sec)
			g.StartOver(500 * ms)
			if !g.Bound(tt.want-1) || g.Bound(tt.want) {
				t.Errorf("Bound() = %t, %t around %d, want true, false", g.Bound(tt.want-1), g.Bound(tt.want), tt.want)
			}
			if !g.Owes(tt.want-1) || g.Owes(tt.want) {
				t.Errorf("Owes() = %t, %t around %d, want true, false", g.Owes(tt.want-1), g.Owes(tt.want), tt.want)
			}
			if _, ok := g.Grant(1, 5, sec); ok {
				t.Error("Grant() of a promise made by the earlier clock, want none")
			}
			if g.Admit(&Release{Term: 9, At: sec}, tt.want-1) {
				t.Error("Admit() with a release in the hold = true, want false")
			}
			g.Promise(1, 5, Probe{Sent: 2 * sec, Duration: time.Second}, ProcessID{}, sec)
			if got, ok := g.Grant(1, 5, sec); !ok || got.Incarnation == 1 || got.Sent != 2*sec {
				t.Errorf("Grant() by the new clock = %+v, %t, want a new incarnation", got, ok)
			}
		})
	}
}

// A clock that was disrupted may have jumped ahead: it shows that a promise, or
// the restart hold, has ended, which is not so.
func TestGuardHoldsWhenItsClockJumpsAhead(t *testing.T) {
	for _, ahead := range []Instant{500 * ms, 900 * ms, 3600 * sec} {
		g := NewGuard(sec, 1, time.Second, time.Second)
		g.Promise(1, 5, Probe{Sent: sec, Duration: 900 * time.Millisecond}, ProcessID{}, 2*sec)
		g.Grant(1, 5, 2*sec)
		now := 2*sec + ahead
		g.StartOver(now)
		if end := now + sec; !g.Bound(end-1) || !g.Owes(end-1) || g.Bound(end) {
			t.Errorf("a clock %d ahead: Bound() = %t, %t around %d, want true, false", ahead, g.Bound(end-1), g.Bound(end), end)
		}
	}
}

func TestGuardInfo(t *testing.T) {
	g := NewGuard(sec, 1, 2*time.Second, 500*time.Millisecond)
	g.Promise(1, 5, Probe{Sent: 500 * sec, Duration: time.Second}, ProcessID{}, sec)
	want := PromiseInfo{Leader: 1, Term: 5, Remaining: 900 * time.Millisecond, Hold: 400 * time.Millisecond, Saved: 2 * time.Second}
	if got := g.Info(1100 * ms); got != want {
		t.Errorf("Info() = %+v, want %+v", got, want)
	}
	want.Remaining, want.Hold = 0, 0
	if got := g.Info(9 * sec); got != want {
		t.Errorf("Info() at the end of both = %+v, want %+v", got, want)
	}
}

// The zero Guard promises nothing, and a node that promises nothing is free.
func TestZeroGuard(t *testing.T) {
	var g Guard
	if g.Promise(1, 5, Probe{Sent: sec, Duration: 1}, ProcessID{}, sec) {
		t.Error("zero Guard: Promise() = true, want false")
	}
	if g.Bound(sec) || g.Owes(sec) || !g.Admit(nil, sec) {
		t.Error("zero Guard: bound, want free")
	}
}

// A hold that would end beyond the end of the clock ends there.
func TestGuardHoldSaturates(t *testing.T) {
	g := NewGuard(sec, 1, time.Second, math.MaxInt64)
	if !g.Bound(Forever - 1) {
		t.Error("Bound() = false within an absurd hold, want true")
	}
	g.StartOver(500 * ms)
	if !g.Bound(Forever - 1) {
		t.Error("Bound() = false within an absurd hold after a step, want true")
	}
}
