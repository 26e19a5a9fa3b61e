package detector

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A leader that stalls each half hour, which is forgotten by then, is suspected less and less often.
func TestStallsThatAreForgotten(t *testing.T) {
	l := learner()
	l.hears(t, 11*time.Second)
	var alarms []int
	for i := range 100 {
		before := l.Stats().FalseAlarms
		l.stalls(300 * ms)
		if l.Stats().FalseAlarms > before {
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
	if l.learnt.least(at(l.now)); l.learnt.calm != calm || l.learnt.doubts != 0 {
		t.Errorf("after days without one an alarm counts for %v, want %v", 2*l.learnt.calm, 2*calm)
	}
}

// The suspicion of another is a hint where the silence is longer than leaders are known to stall.
func TestAPreVoteIsNoHintInAUsualSilence(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(l *life)
		want time.Duration
	}{
		"a leader that never stalls": {func(*life) {}, quiet * beat},
		"it has stalled":             {func(l *life) { l.stalls(200 * ms) }, 200*ms + Interval},
		"it was suspected falsely": {func(l *life) {
			l.stalls(260 * ms)
			l.hears(t, 11*time.Minute) // stalls are forgotten
		}, 500 * ms},
		"who does not learn knows no stalls": {func(l *life) { l.stalls(200 * ms); l.learnt.learn = 0 }, quiet * beat},
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
