package detector

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// life is member 2 of three, which observes its leader, and the time.
type life struct {
	*Detector
	now   time.Duration
	known State
}

// learner has heard of leader 1 at 0, and learns for ten seconds.
func learner() *life {
	d := New(Config{Self: 2, ElectionTicks: 20, Heartbeat: beat, ElectionTimeout: time.Second, Observe: 10 * time.Second}, at(0))
	d.LeaderIs(1, at(0))
	return &life{d, 0, three}
}

// turn lets 5 ms pass and runs the loop once.
func (l *life) turn() (do Decision) {
	l.now += Interval
	if l.now%beat == 0 {
		do = l.Tick(at(l.now), l.known)
	}
	if l.Suspects(at(l.now)) {
		p := l.Poll(at(l.now), l.known)
		do.Forget, do.Campaign = do.Forget || p.Forget, do.Campaign || p.Campaign
	}
	return do
}

// hears lets the leader live for so long, until a heartbeat, and silent be silent.
func (l *life) hears(t *testing.T, long time.Duration) {
	t.Helper()
	for end := l.now + long; l.now < end || l.now%beat != 0; {
		if do := l.turn(); do != nothing {
			t.Fatalf("at %v, with a leader that lives, %+v", l.now, do)
		}
		if l.now%beat == 0 {
			l.Heard(message(raftpb.MsgHeartbeat, l.leader, 5), 5, at(l.now))
		}
	}
}

func (l *life) silent(long time.Duration) {
	for end := l.now + long; l.now < end; {
		l.turn()
	}
}

// stalls lets the leader be silent for a while, and then be heard.
func (l *life) stalls(long time.Duration) {
	l.silent(long)
	l.Heard(message(raftpb.MsgHeartbeat, l.leader, 5), 5, at(l.now))
}

// alarm returns the silence after which the member campaigns.
func (l *life) alarm() time.Duration {
	for began := l.now; l.now < began+2*time.Second; {
		if l.turn().Campaign {
			return l.now - began
		}
	}
	return 0
}

// After which silence a member campaigns, by the pauses it has seen. Without a suspicion it campaigns after
// the tick that ends an election timeout, and if 3 has led, it is the second in turn.
func TestAnUnusuallyLongSilenceIsASuspicion(t *testing.T) {
	const timeout, second = 1050 * ms, 1350 * ms
	for name, tt := range map[string]struct {
		do   func(t *testing.T, l *life)
		want time.Duration
	}{
		"a leader that never stalls":      {func(*testing.T, *life) {}, 5 * beat},
		"it has stalled for a little":     {func(_ *testing.T, l *life) { l.stalls(120 * ms) }, 5 * beat},
		"it has stalled":                  {func(_ *testing.T, l *life) { l.stalls(180 * ms) }, 360 * ms},
		"it has stalled nine minutes ago": {func(t *testing.T, l *life) { l.stalls(180 * ms); l.hears(t, 9*time.Minute) }, 360 * ms},
		"it has stalled ten minutes ago":  {func(t *testing.T, l *life) { l.stalls(180 * ms); l.hears(t, 10*time.Minute) }, 5 * beat},
		"it has sent a thousand entries since": {func(_ *testing.T, l *life) {
			l.stalls(180 * ms)
			for range 1000 {
				l.now += ms
				l.Heard(message(raftpb.MsgApp, 1, 5), 5, at(l.now))
			}
		}, 360 * ms},
		"it stalls for longer than half an election timeout": {func(_ *testing.T, l *life) {
			l.known = bound
			l.stalls(550 * ms)
			l.known = three
		}, timeout},
		"it was away for an election timeout": {func(_ *testing.T, l *life) {
			l.known = bound
			l.stalls(time.Second)
			l.known = three
		}, timeout},
		"it was away, and stalled on its return": {func(t *testing.T, l *life) {
			l.known = bound
			l.stalls(time.Second)
			l.known = three
			l.hears(t, 4*time.Second)
			l.stalls(180 * ms)
			l.hears(t, 6*time.Second)
		}, 5 * beat},
		"it was away, and stalled later": {func(t *testing.T, l *life) {
			l.known = bound
			l.stalls(time.Second)
			l.known = three
			l.hears(t, 5*time.Second)
			l.stalls(180 * ms)
			l.hears(t, 5*time.Second)
		}, 360 * ms},
		"another leads":           {func(_ *testing.T, l *life) { l.LeaderIs(3, at(l.now)) }, second},
		"another has led for 9 s": {func(t *testing.T, l *life) { l.LeaderIs(3, at(l.now)); l.hears(t, 9*time.Second) }, second},
		"another has led for long": {func(t *testing.T, l *life) {
			l.stalls(180 * ms)
			l.LeaderIs(3, at(l.now))
			l.hears(t, 10*time.Second)
		}, 385 * ms},
		"it was forgotten, and leads again": {func(_ *testing.T, l *life) {
			l.LeaderIs(raft.None, at(l.now))
			l.LeaderIs(1, at(l.now))
		}, 5 * beat},
	} {
		t.Run(name, func(t *testing.T) {
			l := learner()
			l.hears(t, 11*time.Second)
			tt.do(t, l)
			if got := l.alarm(); got != tt.want {
				t.Errorf("it campaigns after %v of silence, want %v", got, tt.want)
			}
		})
	}
}

func TestWhereNothingIsObserved(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg   func(*Config)
		watch time.Duration
		want  time.Duration
	}{
		"it learns":                      {func(*Config) {}, 11 * time.Second, 5 * beat},
		"not yet":                        {func(*Config) {}, 9 * time.Second, 1050 * ms},
		"never":                          {func(c *Config) { c.Observe = 0 }, time.Minute, 1050 * ms},
		"a short election timeout":       {func(c *Config) { c.ElectionTicks, c.ElectionTimeout = 5, 290*ms }, time.Minute, 6 * beat},
		"an election timeout of 6 beats": {func(c *Config) { c.ElectionTicks, c.ElectionTimeout = 6, 300*ms }, time.Minute, 5 * beat},
		"beats of 10 ms":                 {func(c *Config) { c.Heartbeat = 10 * ms }, 11 * time.Second, 5 * beat},
		"an election timeout of 5 beats": {func(c *Config) { c.ElectionTicks, c.ElectionTimeout, c.Heartbeat = 5, 500*ms, 100*ms }, time.Minute, 300 * ms},
	} {
		l := learner()
		cfg := l.cfg
		tt.cfg(&cfg)
		l.Detector = New(cfg, at(0))
		l.LeaderIs(1, at(0))
		l.hears(t, tt.watch)
		if got := l.alarm(); got != tt.want {
			t.Errorf("%s: it campaigns after %v of silence, want %v", name, got, tt.want)
		}
	}
}

// While a member does not run it hears nothing, which says nothing of its leader.
func TestOwnPausesAreNoSilence(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(l *life)
		want time.Duration
	}{
		"it was late by a heartbeat":     {func(l *life) { l.silent(beat); l.now += beat }, 3 * beat},
		"it was late by more":            {func(l *life) { l.silent(beat); l.now += 2 * beat }, 6 * beat},
		"it was late for long":           {func(l *life) { l.now += time.Second }, 6 * beat},
		"it was late by an election":     {func(l *life) { l.now += time.Second + beat + Interval }, 21 * beat},
		"what it heard had waited":       {func(l *life) { l.now += 300 * ms; l.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(l.now)) }, 5 * beat},
		"it polls first when it goes on": {func(l *life) { l.silent(4*beat + Interval); l.now += 3 * beat; l.Poll(at(l.now), l.known) }, 5 * beat},
	} {
		t.Run(name, func(t *testing.T) {
			l := learner()
			l.hears(t, 11*time.Second)
			tt.do(l)
			if got := l.alarm(); got != tt.want && got != tt.want-Interval { // ticks are 50 ms apart
				t.Errorf("it campaigns %v after it went on, want %v", got, tt.want)
			}
		})
	}
}

// A member that is late all the time never suspects a leader because of silence.
func TestAMemberThatIsAlwaysLateSuspectsNoLeader(t *testing.T) {
	l := learner()
	l.hears(t, 11*time.Second)
	for range 8 {
		l.now += 2*beat + Interval
		if do := l.Poll(at(l.now), three); do != nothing || l.Suspects(at(l.now)) {
			t.Fatalf("Poll(%v) = %+v of a member that is late by more than a heartbeat, want nothing", l.now, do)
		}
	}
}

// While a promise binds the member, silence is no suspicion: it could prove false.
func TestASilenceIsNoSuspicionWhileThePromiseLasts(t *testing.T) {
	l := learner()
	l.hears(t, 11*time.Second)
	l.known = bound
	l.silent(600 * ms)
	if s := l.Stats(); s.Suspicions != [NumCauses]uint64{} {
		t.Errorf("Stats() = %+v of a member that is bound, want no hint", s)
	}
	l.known = three
	if got := l.alarm(); got != Interval {
		t.Errorf("it campaigns %v after its promise, want at once", got)
	}
	l.LeaderIs(3, at(l.now+10*ms))
	want := FailOver{Cause: LongSilence, Detection: 605 * ms, Election: 10 * ms}
	if s := l.Stats(); s.Last != want || s.Suspicions[LongSilence] != 1 || s.Forgets != 1 || s.FalseSuspicions != 0 {
		t.Errorf("Stats() = %+v, want one hint by silence, and %+v", s, want)
	}
}

// Any sign of life ends the silence, be it sent before: it was all there was.
func TestASignOfLifeEndsASilenceAtOnce(t *testing.T) {
	l := learner()
	l.hears(t, 11*time.Second)
	l.stalls(255 * ms)
	if s := l.Stats(); l.Suspects(at(l.now)) || s.Suspicions[LongSilence] != 1 || s.FalseSuspicions != 1 {
		t.Errorf("Stats() = %+v, and it suspects its leader: %v, want one false alarm that is over", s, l.Suspects(at(l.now)))
	}
}

// Each false suspicion doubles the minimum, the first one for an hour, the second for two.
func TestFalseSuspicionsRaiseTheMinimum(t *testing.T) {
	l := learner()
	l.hears(t, 11*time.Second)
	limit := func(want time.Duration) {
		t.Helper()
		l.hears(t, 11*time.Minute) // stalls are forgotten
		if got := l.Stats().Limit; got != want {
			t.Errorf("after %v the limit is %v, want %v", l.now, got, want)
		}
	}
	limit(250 * ms)
	l.stalls(260 * ms)
	limit(500 * ms)
	l.stalls(510 * ms)
	limit(time.Second)
	l.stalls(900 * ms) // no suspicion: nothing is left to double
	l.hears(t, 90*time.Minute)
	limit(time.Second)
	l.hears(t, 10*time.Minute)
	limit(500 * ms)
	l.hears(t, 90*time.Minute)
	limit(500 * ms)
	l.hears(t, 10*time.Minute)
	limit(250 * ms)
	if s := l.Stats(); s.FalseSuspicions != 2 || s.Suspicions[LongSilence] != 2 {
		t.Errorf("Stats() = %+v, want two false alarms", s)
	}
}

// A suspicion of another leader may prove false late, when nothing is left to double.
func TestFalseSuspicionsThatCannotBe(t *testing.T) {
	l := learner()
	for range 10 {
		l.adaptive.suspected, l.adaptive.suspectedFrom = 1, at(l.now)
		l.now += 300 * ms
		l.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(l.now))
	}
	if got := l.adaptive.minLimit(at(l.now)); got != time.Second {
		t.Errorf("after ten false alarms the least silence is %v, want the election timeout", got)
	}
}

// If another member leads by then, it shows later whether a suspicion was false.
func TestALeaderIsReplacedAndLives(t *testing.T) {
	for name, tt := range map[string]struct {
		m     *raftpb.Message
		after time.Duration // since it was heard last
		want  uint64
	}{
		"it is heard soon":                    {message(raftpb.MsgHeartbeat, 1, 5), 400 * ms, 1},
		"it answers":                          {message(raftpb.MsgAppResp, 1, 6), 400 * ms, 1},
		"it is heard an election timeout ago": {message(raftpb.MsgHeartbeat, 1, 5), time.Second, 0},
		"another is heard":                    {message(raftpb.MsgApp, 3, 6), 400 * ms, 0},
	} {
		l := learner()
		l.hears(t, 11*time.Second)
		heard := l.now
		if got := l.alarm(); got != 5*beat {
			t.Fatalf("it campaigns after %v of silence, want %v", got, 5*beat)
		}
		l.LeaderIs(3, at(l.now+10*ms))
		for range 2 { // the second time it is no news
			l.Heard(tt.m, 6, at(heard+tt.after))
		}
		if s := l.Stats(); s.FalseSuspicions != tt.want || uint64(l.adaptive.doubled) != tt.want {
			t.Errorf("%s: Stats() = %+v, and %d doubts, want %d", name, s, l.adaptive.doubled, tt.want)
		}
	}
}

// A member without a leader for a long time does not suspect the next one at once.
func TestALongSilenceIsNoNews(t *testing.T) {
	l := learner()
	l.hears(t, 5*time.Second)
	for range 4000 {
		l.now += Interval
		l.Poll(at(l.now), three)
	}
	if s := l.Stats(); s.Suspicions != [NumCauses]uint64{} {
		t.Errorf("Stats() = %+v, want no hint", s)
	}
}

// A loop polls when a silence is about to be a suspicion, and not before.
func TestWhenALoopPolls(t *testing.T) {
	l := learner()
	l.hears(t, 11*time.Second)
	for silence := time.Duration(0); silence < 3*time.Second; silence += Interval {
		now := at(l.now + silence)
		if got, want := l.Suspects(now), silence >= 4*beat && silence < time.Second; got != want {
			t.Fatalf("Suspects() = %v after %v of silence, want %v", got, silence, want)
		}
	}
	l.LeaderIs(2, at(l.now))
	l.known = State{Voters: three.Voters, Leads: true}
	for range 4000 {
		if l.turn() != nothing || l.Suspects(at(l.now)) {
			t.Fatalf("%v after it was elected a leader suspects itself: %+v", l.now, l.Stats())
		}
	}
	if s := l.Stats(); s.Limit != 0 {
		t.Errorf("a leader's limit is %v, want none", s.Limit)
	}
}

// A leader that pauses each half hour, after the window has forgotten, is suspected less and less often.
func TestPausesThatAreForgotten(t *testing.T) {
	l := learner()
	l.hears(t, 11*time.Second)
	var alarms []int
	for i := range 100 {
		before := l.Stats().FalseSuspicions
		l.stalls(300 * ms)
		if l.Stats().FalseSuspicions > before {
			alarms = append(alarms, i)
		}
		l.now += 30 * time.Minute
		l.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(l.now))
		l.hears(t, 11*time.Second)
	}
	if want := []int{0, 2, 6, 14, 30, 62}; !slices.Equal(alarms, want) {
		t.Errorf("stalls %v of 100 are alarms, want %v", alarms, want)
	}
	l.now += 200 * time.Hour
	if l.adaptive.minLimit(at(l.now)); l.adaptive.penalty != minPenalty || l.adaptive.doubled != 0 {
		t.Errorf("after days without one an alarm counts for %v, want %v", 2*l.adaptive.penalty, 2*minPenalty)
	}
}

// Another member's pre-vote is a suspicion if the silence is longer than the recorded pauses.
func TestAPreVoteIsNoSuspicionInAUsualSilence(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(l *life)
		want time.Duration
	}{
		"a leader that never stalls": {func(*life) {}, missedHeartbeats * beat},
		"it has stalled":             {func(l *life) { l.stalls(200 * ms) }, 200*ms + Interval},
		"it was suspected falsely": {func(l *life) {
			l.stalls(260 * ms)
			l.hears(t, 11*time.Minute) // stalls are forgotten
		}, 500 * ms},
		"a detector without observation knows no pauses": {func(l *life) { l.stalls(200 * ms); l.adaptive.learn = 0 }, missedHeartbeats * beat},
	} {
		l := learner()
		l.hears(t, 11*time.Second)
		tt.do(l)
		silence, do := time.Duration(0), nothing
		for ; do == nothing && silence < time.Second; silence += Interval {
			do = l.Heard(message(raftpb.MsgPreVote, 3, 6), 5, at(l.now+silence))
		}
		if got := silence - Interval; do != forget || got != tt.want {
			t.Errorf("%s: the leader is forgotten after a silence of %v: %+v, want after %v", name, got, do, tt.want)
		}
	}
}
