package core

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// watched is a leader of two voters and the clock of the other, each driven by
// true time.
type watched struct {
	lease         *Lease
	truth         int64
	leader, voter modelClock
	incarnation   Incarnation
	every, rtt    time.Duration
}

func newWatched(leaderPPM, voterPPM int64, every, rtt time.Duration) *watched {
	w := &watched{every: every, rtt: rtt, incarnation: 1}
	w.leader = modelClock{base: sec, ppm: leaderPPM}
	w.voter = modelClock{base: 77 * sec, ppm: voterPPM}
	w.lease = leading(sec, voters(1, 2))
	return w
}

// beat sends one heartbeat, half a round trip each way, and reports whether the
// voter's clock is doubted after its answer.
func (w *watched) beat() bool {
	sent := w.leader.at(w.truth)
	w.truth += int64(w.rtt) / 2
	reading := w.voter.at(w.truth)
	w.truth += int64(w.rtt) / 2
	w.lease.Count(2, 5, Grant{Sent: sent, Duration: testParams.Duration, Reading: reading, Incarnation: w.incarnation}, w.leader.at(w.truth))
	w.truth += int64(w.every - w.rtt)
	return w.suspect()
}

func (w *watched) suspect() bool { return w.lease.Peers(sec)[0].ClockSuspect }

// within plays true time for d and returns when the voter's clock was first
// seen to be doubted, or -1.
func (w *watched) within(d time.Duration, doubted bool) time.Duration {
	begin := w.truth
	for w.truth-begin < int64(d) {
		if w.beat() == doubted {
			return time.Duration(w.truth - begin)
		}
	}
	return -1
}

// at makes the clock run at another rate from here on.
func (c *modelClock) setRate(ppm, truth int64) {
	*c = modelClock{base: c.at(truth), since: truth, ppm: ppm}
}

// A clock outside the bound is found within the time in which the excess
// outgrows two round trips, plus a heartbeat. The margin of a fifth lets a
// voter's clock gain 25 % on the leader's, or lose 20 %.
func TestRateOutsideTheBoundIsFound(t *testing.T) {
	for _, tt := range []struct {
		name          string
		leader, voter int64
		rtt           time.Duration
		within        time.Duration
	}{
		{"a voter that is 2 % too fast", 0, 275_000, time.Millisecond, 300 * time.Millisecond},
		{"a voter that is 2 % too fast, far away", 0, 275_000, 40 * time.Millisecond, 3 * time.Second},
		{"a voter twice as fast", 0, 1_000_000, 40 * time.Millisecond, 300 * time.Millisecond},
		{"a voter that is 2.5 % too slow", 0, -220_000, time.Millisecond, 300 * time.Millisecond},
		{"a voter that is 2.5 % too slow, far away", 0, -220_000, 40 * time.Millisecond, 4500 * time.Millisecond},
		{"a voter that stands still", 0, -1_000_000, 40 * time.Millisecond, 300 * time.Millisecond},
		{"a leader that is too slow", -220_000, 0, time.Millisecond, 400 * time.Millisecond},
		{"a leader that is too fast", 275_000, 0, time.Millisecond, 400 * time.Millisecond},
		{"both, each in its own direction", -120_000, 120_000, time.Millisecond, 400 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWatched(tt.leader, tt.voter, 100*time.Millisecond, tt.rtt)
			at := w.within(time.Minute, true)
			if at < 0 || at > tt.within {
				t.Errorf("doubted after %v, want within %v", at, tt.within)
			}
			if s := new(w.lease.View(sec)).Check(w.leader.at(w.truth)); s != ClockFault {
				t.Errorf("Check() = %v without a trusted quorum, want clock", s)
			}
		})
	}
}

// A clock that begins to run wrong after hours of running right is found within
// a window and what it takes then.
func TestRateChangeIsFound(t *testing.T) {
	w := newWatched(0, 0, 100*time.Millisecond, time.Millisecond)
	if at := w.within(time.Hour, true); at >= 0 {
		t.Fatalf("a good clock is doubted after %v", at)
	}
	w.voter.setRate(300_000, w.truth)
	if at := w.within(time.Hour, true); at < 0 || at > 65*time.Second {
		t.Errorf("doubted %v after the change, want within a window of 64 promises", at)
	}
	w.voter.setRate(0, w.truth)
	at := w.within(time.Hour, false)
	if at < 4*time.Second || at > 5*time.Second {
		t.Errorf("trusted again after %v, want four promises", at)
	}
	if s := new(w.lease.View(sec)).Check(w.leader.at(w.truth)); s != Valid {
		t.Errorf("Check() = %v with a trusted quorum again, want valid", s)
	}
}

// While it stays wrong it stays doubted: the short windows after a finding
// find it again.
func TestRateStaysDoubted(t *testing.T) {
	w := newWatched(0, 300_000, 100*time.Millisecond, 5*time.Millisecond)
	w.within(time.Minute, true)
	if at := w.within(10*time.Minute, false); at >= 0 {
		t.Errorf("trusted again after %v, want never", at)
	}
}

// A restart is a new clock, of which nothing is known yet.
func TestRateForgetsWithTheIncarnation(t *testing.T) {
	w := newWatched(0, 300_000, 100*time.Millisecond, time.Millisecond)
	if at := w.within(time.Minute, true); at < 0 {
		t.Fatal("a fast clock is not doubted")
	}
	w.incarnation, w.voter = w.incarnation.Next(), modelClock{base: 77 * sec, since: w.truth}
	if w.beat() {
		t.Error("doubted by the first grant of a new incarnation")
	}
	if at := w.within(10*time.Minute, true); at >= 0 {
		t.Errorf("a good clock is doubted after %v, want never: its incarnation is new", at)
	}
}

// The leader's own clock went back: windows that it began mean nothing. They
// would show every voter's clock to be fast.
func TestRateForgetsWithTheLeadersClock(t *testing.T) {
	w := newWatched(0, 0, 100*time.Millisecond, time.Millisecond)
	w.within(10*time.Second, true)
	w.leader = modelClock{base: 2 * sec, since: w.truth}
	w.lease.StartOver(w.leader.at(w.truth))
	w.lease.StepDown()
	w.lease.Lead(5, w.leader.at(w.truth))
	if at := w.within(time.Minute, true); at >= 0 {
		t.Errorf("a good clock is doubted %v after the leader's went back, want never", at)
	}
	w.voter.setRate(300_000, w.truth)
	if at := w.within(65*time.Second, true); at < 0 {
		t.Error("a bad clock is not doubted after the leader's went back")
	}
}

// A node that was doubted in one term is doubted in the next: the finding is
// about its clock.
func TestRateOutlivesTheTerm(t *testing.T) {
	w := newWatched(0, 300_000, 100*time.Millisecond, time.Millisecond)
	w.within(time.Minute, true)
	w.lease.Lead(6, w.leader.at(w.truth))
	if !w.suspect() {
		t.Error("ClockSuspect = false in the next term, want true")
	}
	w.lease.SetVoters(voters(1, 3))
	w.lease.SetVoters(voters(1, 2))
	if w.suspect() {
		t.Error("ClockSuspect = true of a voter that was removed and added, want what a stranger has")
	}
}

// Losing one voter to a doubt costs its promise at once, and its removal ends
// what it was the reason for.
func TestRateDoubtAndQuorum(t *testing.T) {
	w := newWatched(0, 300_000, 100*time.Millisecond, time.Millisecond)
	w.within(time.Minute, true)
	now := w.leader.at(w.truth)
	w.lease.SetVoters(voters(1, 2, 3))
	grants(w.lease, now, now, 3)
	if s := new(w.lease.View(now)).Check(now); s != Valid {
		t.Errorf("Check() = %v, want valid: two of three voters are enough", s)
	}
	w.lease.SetVoters(voters(1, 2, 4))
	if s := w.lease.View(now).Status; s != Valid {
		t.Errorf("View().Status = %v, want valid: two of three clocks are sound, one has yet to answer", s)
	}
	w.lease.SetVoters(voters(1, 2))
	if s := w.lease.View(now).Status; s != ClockFault {
		t.Errorf("View().Status = %v, want clock", s)
	}
	w.lease.SetVoters(voters(1))
	if s := w.lease.View(now).Status; s != Valid {
		t.Errorf("View().Status = %v of a sole voter, want valid", s)
	}
}

// A voter's clock that goes back within one incarnation is broken, whatever the
// round trips leave room for.
func TestRateGoesBack(t *testing.T) {
	for _, tt := range []struct {
		name    string
		reading Instant
		want    bool
	}{
		{"it stands still between two answers that overlap", 7 * sec, false},
		{"it goes back by less than readings are rounded", 7*sec - 1000, false},
		{"it goes back by more", 7*sec - 1001, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := leading(sec, voters(1, 2))
			l.Count(2, 5, Grant{Sent: 2 * sec, Duration: time.Second, Reading: 7 * sec}, 2500*ms)
			l.Count(2, 5, Grant{Sent: 2100 * ms, Duration: time.Second, Reading: tt.reading}, 2600*ms)
			if got := l.Peers(3 * sec)[0].ClockSuspect; got != tt.want {
				t.Errorf("ClockSuspect = %t, want %t", got, tt.want)
			}
		})
	}
}

// A doubt takes effect with the answer that raises it, also where that promises
// less than what is known already.
func TestRateDoubtByAShorterPromise(t *testing.T) {
	l := leading(sec, voters(1, 2))
	l.Count(2, 5, Grant{Sent: 2 * sec, Duration: time.Second, Reading: 7 * sec}, 2*sec)
	l.Count(2, 5, Grant{Sent: 2100 * ms, Duration: time.Millisecond, Reading: 9 * sec}, 2100*ms)
	if v := l.View(2100 * ms); v.Check(2100*ms) != ClockFault || v.End != 0 {
		t.Errorf("View() = %+v after a clock was seen to be fast, want no lease", v)
	}
}

// The leader's machine was stopped: it suspects no clock by what its own clock showed
// before, and waits for answers to what it sends from then on.
func TestStartOverForgets(t *testing.T) {
	w := newWatched(0, 300_000, 100*time.Millisecond, time.Millisecond)
	w.within(time.Minute, true)
	now := w.leader.at(w.truth)
	w.lease.StartOver(now)
	if v := w.lease.View(now); w.suspect() || v.Status != ClockFault || v.End != 0 {
		t.Errorf("View() after StartOver = %+v, ClockSuspect = %t, want no end and no doubt", v, w.suspect())
	}
	grants(w.lease, now, now, 2)
	if end := w.lease.View(now).End; end != 0 {
		t.Errorf("End = %d after an answer to a probe from before, want 0", end)
	}
	grants(w.lease, now+1, now+1, 2)
	if end := w.lease.View(now).End; end != now+1+sec {
		t.Errorf("End = %d after an answer to a later probe, want %d", end, now+1+sec)
	}
}

// goodClocksAreNeverDoubted: clocks that change their rate within the bound,
// pauses at either side, and any delay in either direction raise no alarm.
func goodClocksAreNeverDoubted(t *rapid.T) {
	rate := rapid.Int64Range(-111_000, 111_000) // ±ρ with 2ρ/(1+ρ) just below a fifth
	w := newWatched(rate.Draw(t, "leader"), rate.Draw(t, "voter"), 0, 0)
	delay := rapid.OneOf(rapid.Int64Range(0, int64(time.Millisecond)), rapid.Int64Range(0, int64(3*time.Second)))
	var late []Grant
	for range rapid.IntRange(1, 60).Draw(t, "rounds") {
		sent := w.leader.at(w.truth)
		w.truth += delay.Draw(t, "out")
		late = append(late, Grant{Sent: sent, Duration: time.Second, Reading: w.voter.at(w.truth), Incarnation: w.incarnation})
		w.truth += delay.Draw(t, "back")
		g := late[rapid.IntRange(0, len(late)-1).Draw(t, "grant")] // the newest, or a repeated one
		w.lease.Count(2, 5, g, w.leader.at(w.truth))
		if w.suspect() {
			t.Fatalf("doubted at %v", time.Duration(w.truth))
		}
		w.truth += delay.Draw(t, "pause")
		w.leader.setRate(rate.Draw(t, "leader"), w.truth)
		w.voter.setRate(rate.Draw(t, "voter"), w.truth)
	}
}

func TestGoodClocksAreNeverDoubted(t *testing.T) { rapid.Check(t, goodClocksAreNeverDoubted) }

func FuzzGoodClocksAreNeverDoubted(f *testing.F) {
	addChoices(f)
	f.Fuzz(rapid.MakeFuzz(goodClocksAreNeverDoubted))
}

// Garbage in the watched fields is a reason to doubt or to ignore, never to
// panic or to count for more.
func TestRateReadings(t *testing.T) {
	for _, reading := range []Instant{0, -1, 1, Forever - 1, Forever, -Forever} {
		t.Run(fmt.Sprint(reading), func(t *testing.T) {
			l := leading(sec, voters(1, 2))
			for sent := 2 * sec; sent < 4*sec; sent += 100 * ms {
				l.Count(2, 5, Grant{Sent: sent, Duration: time.Second, Reading: reading}, sent)
				reading = min(reading, Forever-sec) + ms // slow, where it can be watched
			}
			end := l.View(4 * sec).End
			if doubted := l.Peers(4 * sec)[0].ClockSuspect; doubted != (end == 0) || end > 5*sec {
				t.Errorf("End = %d with ClockSuspect = %t", end, doubted)
			}
		})
	}
}

// A voter's machine that slept for hours is trusted again within sixteen
// promises, not after as many hours.
func TestRateRecoversSoonAfterALongSilence(t *testing.T) {
	w := newWatched(0, 0, 100*time.Millisecond, time.Millisecond)
	w.beat()
	w.voter.setRate(-1_000_000, w.truth) // its clock stops, and so do its answers
	w.truth += int64(8 * time.Hour)
	w.voter.setRate(0, w.truth)
	if at := w.within(time.Second, true); at < 0 {
		t.Fatal("a clock that stood still for hours was never doubted")
	}
	if at, want := w.within(time.Hour, false), 16*sec+sec; at < 0 || Instant(at) > want {
		t.Errorf("doubted for %v after it was found, want at most %v", at, time.Duration(want))
	}
}

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
