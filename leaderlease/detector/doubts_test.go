package detector

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

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
