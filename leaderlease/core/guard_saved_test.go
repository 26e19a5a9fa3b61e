package core

import (
	"testing"
	"time"
)

const (
	short  = 250 * time.Millisecond
	middle = 500 * time.Millisecond
	long   = 900 * time.Millisecond
)

// keeping is a guard that makes promises of up to 2 s, of which storage holds d. It holds
// for that after its start at sec.
func keeping(d time.Duration) *Guard {
	g := NewGuard(sec, 1, 2*time.Second, d)
	g.SetStored(short, d)
	return g
}

func (g *Guard) asked(d time.Duration, now Instant) bool {
	return g.Promise(1, 5, Probe{Sent: now, Duration: d}, ProcessID{}, now)
}

func (g *Guard) wantSave(t *testing.T, now Instant, want time.Duration) {
	t.Helper()
	if d, ok := g.BeginSave(now); d != want || ok != (want > 0) {
		t.Errorf("BeginSave(%d) = %v, %v, want %v", now, d, ok, want)
	}
}

// A longer promise is made once a restart would hold for it, and no sooner.
func TestALongerPromiseWaitsForTheDisk(t *testing.T) {
	g := keeping(short)
	if !g.asked(short, sec) {
		t.Fatal("a promise within what is saved is refused")
	}
	g.wantSave(t, sec, 0)
	if g.asked(long, sec) {
		t.Fatal("a promise is made that a restart would not hold for")
	}
	g.wantSave(t, sec, long)
	if g.asked(long, 2*sec) || g.asked(short+1, 2*sec) {
		t.Error("a promise is made while what covers it is being saved")
	}
	g.Saved(long)
	if !g.asked(long, 2*sec) || g.asked(long+1, 2*sec) {
		t.Error("what is saved is not what decides")
	}
}

// The longest promise that a leader asks for, and that it may have, is saved.
func TestOnlyWhatMayBePromisedIsSaved(t *testing.T) {
	g := keeping(short)
	g.SetTerm(5)
	for _, p := range []struct {
		term uint64
		d    time.Duration
	}{{4, time.Second}, {5, 2*time.Second + 1}, {5, long}, {5, long - 1}} {
		g.Promise(1, p.term, Probe{Sent: sec, Duration: p.d}, ProcessID{}, sec)
	}
	g.wantSave(t, sec, long)
	g.Saved(long)
	g.wantSave(t, sec, 0)
}

// Promises of earlier processes end with the restart hold. The saved duration falls then
// to the longest one of this process, and never again.
func TestWhatIsSavedFallsWithTheEndOfTheHold(t *testing.T) {
	end := sec + Instant(long)
	for _, tt := range []struct {
		name string
		do   func(g *Guard)
		want time.Duration
	}{
		{"no promise is made", func(*Guard) {}, short},
		{"a short promise is made", func(g *Guard) { g.asked(short, sec) }, short},
		{"a longer promise is made", func(g *Guard) { g.asked(middle, sec); g.asked(short, sec) }, middle},
		{"as long a promise is made", func(g *Guard) { g.asked(long, sec) }, 0},
		{"the clock steps back", func(g *Guard) { g.StartOver(sec - 1) }, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := keeping(long)
			g.wantSave(t, end-1, 0)
			tt.do(g)
			g.wantSave(t, 0, 0) // a clock that cannot be read
			if tt.want < long {
				g.wantSave(t, end-1, 0)
			}
			g.wantSave(t, end, tt.want)
			if tt.want == 0 || tt.want > long {
				return
			}
			if g.asked(tt.want+1, end) {
				t.Error("a longer promise is made while storage is about to hold less")
			}
			if !g.asked(tt.want, end) {
				t.Error("a promise is refused that storage covers before the save and after it")
			}
			g.Saved(tt.want)
			g.wantSave(t, end, tt.want+1) // for the promise that was refused
			g.Saved(tt.want + 1)
			g.wantSave(t, end+10*sec, 0)
		})
	}
}

// A save that fails leaves either duration behind. Promises keep to the shorter one, and a
// longer one is asked for again.
func TestASaveThatFailsIsRepeated(t *testing.T) {
	g := keeping(short)
	g.asked(long, sec)
	for range 2 {
		g.wantSave(t, sec, long)
		if g.asked(short+1, sec) {
			t.Error("a promise is made that a restart may not hold for")
		}
	}
}

// A disruption may leave a memory that is older than storage, which lacks promises of any
// length. The guard makes no promise that storage may not cover, and saves its longest one.
func TestADisruptedGuardTrustsNoSave(t *testing.T) {
	for _, saved := range []time.Duration{short, long} {
		g := keeping(saved)
		g.StartOver(5 * sec)
		if end := 7 * sec; !g.Bound(end-1) || g.Bound(end) {
			t.Errorf("saved %v: Bound() = %t, %t around %d, want true, false", saved, g.Bound(end-1), g.Bound(end), end)
		}
		if g.asked(short+1, 8*sec) || !g.asked(short, 8*sec) {
			t.Errorf("saved %v: what may not be saved is promised, or what must be is not", saved)
		}
		g.wantSave(t, 8*sec, 2*time.Second)
		g.Saved(2 * time.Second)
		if !g.asked(2*time.Second, 8*sec) {
			t.Errorf("saved %v: a promise that is saved is refused", saved)
		}
		g.wantSave(t, 20*sec, 0)
	}
}

// A process restarts, in an older term than it promised in, and with a shorter MaxPromise
// than it had. Its clock is disrupted, and a leader of that older term asks for less than
// what is saved. A restart must go on to hold for the promises of the process before.
func TestADisruptedGuardLowersNothingThatMayBeOwed(t *testing.T) {
	g := NewGuard(sec, 1, middle, long)
	g.SetStored(short, long)
	g.SetTerm(4)
	g.StartOver(sec + 1)
	if g.Promise(3, 4, Probe{Sent: 1, Duration: middle}, ProcessID{}, sec+2) {
		t.Fatal("what may not be saved is promised")
	}
	g.wantSave(t, sec+2, long)
}

// A guard without storage makes promises of up to the longest, and saves nothing.
func TestAGuardWithoutStorageSavesNothing(t *testing.T) {
	for _, hold := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
		g := NewGuard(sec, 1, 2*time.Second, hold)
		if !g.asked(2*time.Second, sec) || g.asked(2*time.Second+1, sec) {
			t.Error("something else than the longest promise decides")
		}
		g.StartOver(2 * sec)
		if !g.asked(2*time.Second, 2*sec) {
			t.Error("it promises less after a step of its clock")
		}
		for now := range 10 * sec / Instant(short) {
			g.wantSave(t, now*Instant(short), 0)
		}
	}
}
