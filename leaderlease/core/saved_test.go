package core

import (
	"testing"
	"time"
)

const (
	short = 250 * time.Millisecond
	long  = 900 * time.Millisecond
)

// keeping is a guard that makes promises of up to 2 s, of which storage holds d.
func keeping(d time.Duration) *Guard {
	g := NewGuard(sec, 1, 2*time.Second, 0)
	g.Keep(short, d, sec)
	return g
}

func (g *Guard) asked(d time.Duration, now Instant) bool {
	return g.Promise(1, 5, Probe{Sent: now, Duration: d}, ProcessID{}, now)
}

func (g *Guard) wantSave(t *testing.T, now Instant, want time.Duration) {
	t.Helper()
	if d, ok := g.Save(now); d != want || ok != (want > 0) {
		t.Errorf("Save(%d) = %v, %v, want %v", now, d, ok, want)
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

// What is wanted is the longest that anybody has asked for who could have had it.
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
	g.wantSave(t, sec, 0) // it is being saved
}

// What is saved falls once every longer promise has ended for sure.
func TestWhatIsSavedFalls(t *testing.T) {
	at := 10 * sec
	tests := []struct {
		name string
		do   func(g *Guard)
		due  Instant
	}{
		{"counted from the start", func(*Guard) {}, sec + Instant(long)},
		{"counted from the last longer promise", func(g *Guard) { g.asked(long, at-sec); g.asked(short+1, at) }, at + Instant(long)},
		{"a short promise does not count", func(g *Guard) { g.asked(short, at) }, sec + Instant(long)},
		{"counted from the last disruption", func(g *Guard) { g.ClockStepped(at) }, at + 2*sec},
		{"counted from a step back", func(g *Guard) { g.asked(long, at); g.ClockStepped(sec) }, 3 * sec},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			g := keeping(long)
			tc.do(g)
			g.wantSave(t, 0, 0) // a clock that cannot be read
			g.wantSave(t, tc.due-1, 0)
			g.wantSave(t, tc.due, short)
			if g.asked(short+1, tc.due) {
				t.Error("a longer promise is made before it is known which one is saved")
			}
			if !g.asked(short, tc.due) {
				t.Error("a short promise is refused")
			}
		})
	}
}

// A save that fails leaves either duration behind: promises keep to the shorter one, a
// longer one is asked for again, and the shorter one is saved again in time.
func TestASaveThatFailsIsRepeated(t *testing.T) {
	g := keeping(short)
	g.asked(long, sec)
	g.wantSave(t, sec, long)
	g.wantSave(t, sec+Instant(long)-1, 0)
	g.wantSave(t, sec+Instant(long), short) // the longer one may be there
	g.asked(long, 3*sec)
	g.wantSave(t, 3*sec, long)
	if g.Info(3*sec).Saved != long {
		t.Errorf("Info().Saved = %v, want %v, which may be there", g.Info(3*sec).Saved, long)
	}
}

// A clock that was disrupted may come with a memory from before a save: the node holds
// for the longest promise it ever makes, and makes none that may not be saved.
func TestADisruptedGuardTrustsNoSave(t *testing.T) {
	for _, saved := range []time.Duration{short, long} {
		g := keeping(saved)
		g.ClockStepped(5 * sec)
		if end := 7 * sec; !g.Bound(end-1) || g.Bound(end) {
			t.Errorf("saved %v: Bound() = %t, %t around %d, want true, false", saved, g.Bound(end-1), g.Bound(end), end)
		}
		if g.asked(short+1, 8*sec) || !g.asked(short, 8*sec) {
			t.Errorf("saved %v: what may not be saved is promised, or what must be is not", saved)
		}
		g.wantSave(t, 8*sec, short+1)
	}
}

// The memory may be one from the midst of a save, whose end it then hears of; storage may
// hold what was saved later.
func TestADisruptionInTheMidstOfASaveVoidsIt(t *testing.T) {
	g := keeping(short)
	g.asked(long, sec)
	g.wantSave(t, sec, long)
	g.ClockStepped(5 * sec)
	g.Saved(long)
	if g.asked(long, 8*sec) {
		t.Error("a promise is made that storage may not hold")
	}
	g.wantSave(t, 8*sec, long)
	g.Saved(long)
	if !g.asked(long, 9*sec) {
		t.Error("a save that began after the disruption does not count")
	}
}

// After a disruption the memory may be one from before promises of any length, and the disk
// may hold more than it says: what is saved falls when the longest of them would have ended.
func TestADisruptedGuardLowersNothingThatMayBeOwed(t *testing.T) {
	const middle = 500 * time.Millisecond
	g := keeping(middle)
	g.ClockStepped(5 * sec)
	g.wantSave(t, 7*sec-1, 0)
	g.wantSave(t, 7*sec, short)
}

// A process that has restarted in an older term than it promised in, and whose clock was
// disrupted then, hears a leader of that older term, which asks for less than what is saved:
// a restart must go on to hold for the promises of the process before.
func TestAShorterProbeLowersNothingThatMayBeOwed(t *testing.T) {
	const middle = 500 * time.Millisecond
	g := NewGuard(sec, 1, long, long)
	g.Keep(short, long, sec)
	g.SetTerm(4)
	g.ClockStepped(sec + 1)
	if g.Promise(3, 4, Probe{Sent: 1, Duration: middle}, ProcessID{}, sec+2) {
		t.Fatal("what may not be saved is promised")
	}
	g.wantSave(t, sec+2, long)
}

// While a long promise is saved, which takes the disk longer than that promise lasts, another
// leader asks for a shorter one. When it is that one's turn to be saved, who asks for the long
// one must wait: storage is about to hold less.
func TestNoLongerPromiseIsMadeWhileAShorterOneIsSaved(t *testing.T) {
	const middle = 500 * time.Millisecond
	g := keeping(short)
	g.asked(long, sec)
	g.wantSave(t, sec, long)
	g.asked(middle, sec+1)
	now := sec + Instant(long)
	g.Saved(long)
	g.wantSave(t, now, middle)
	if g.asked(long, now) {
		t.Error("a promise is made that storage holds no longer once the save is over")
	}
	if !g.asked(middle, now) {
		t.Error("a promise is refused that storage holds before the save and after it")
	}
	g.Saved(middle)
	if g.asked(long, now+1) {
		t.Error("what is saved is not what decides")
	}
	g.wantSave(t, now+1, long)
}

// A guard that nobody has told of storage promises what it may, and saves nothing.
func TestAGuardWithoutStorageSavesNothing(t *testing.T) {
	g := NewGuard(sec, 1, 2*time.Second, time.Second)
	if !g.asked(2*time.Second, sec) || g.asked(2*time.Second+1, sec) {
		t.Error("something else than the longest promise decides")
	}
	g.ClockStepped(2 * sec)
	if !g.asked(2*time.Second, 2*sec) {
		t.Error("it promises less after a step of its clock")
	}
	for now := range 10 * sec / Instant(short) {
		g.wantSave(t, now*Instant(short), 0)
	}
}
