package detector

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/internal/votes"
)

// Which way a fail-over went, and how long each part took.
func TestWaysOfFailOvers(t *testing.T) {
	vote := message(raftpb.MsgVote, 3, 6)
	vote.Context = []byte("CampaignTransfer")
	word := message(raftpb.MsgTimeoutNow, 1, 5)
	votes.MarkResignation(word)
	for name, tt := range map[string]struct {
		do   func(d *Detector)
		at   time.Duration
		want FailOver
	}{
		"silence":           {func(*Detector) {}, 1060 * ms, FailOver{Hint: time.Second, Election: 60 * ms}},
		"others' silence":   {func(*Detector) {}, 900 * ms, FailOver{Hint: 900 * ms}},
		"it was asked":      {func(d *Detector) { d.Heard(message(raftpb.MsgTimeoutNow, 1, 5), 5, at(40*ms)) }, 48 * ms, FailOver{Way: Transfer, Election: 8 * ms}},
		"the leader ended":  {func(d *Detector) { d.Heard(word, 5, at(40*ms)) }, 48 * ms, FailOver{Way: Resignation, Election: 8 * ms}},
		"another was asked": {func(d *Detector) { d.Heard(vote, 5, at(40*ms)) }, 45 * ms, FailOver{Way: Transfer, Election: 5 * ms}},
		"asked in vain": {func(d *Detector) {
			d.Heard(vote, 5, at(40*ms))
			d.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(50*ms))
		}, 1150 * ms, FailOver{Hint: time.Second, Election: 100 * ms}},
		"another was first, though it was hinted at": {func(d *Detector) { d.Gone(1, at(10*ms)) }, 260 * ms, FailOver{Way: Hint, Hint: 10 * ms, Election: 250 * ms}},
		"a campaign that was none of a transfer":     {func(d *Detector) { d.Heard(message(raftpb.MsgVote, 3, 6), 5, at(40*ms)) }, 50 * ms, FailOver{Hint: 50 * ms}},
	} {
		d := follower(2)
		tt.do(d)
		d.LeaderIs(3, at(tt.at))
		if s := d.Stats(); s.Last != tt.want || s.FailOvers[tt.want.Way] != 1 {
			t.Errorf("%s: Stats() = %+v, want %+v", name, s, tt.want)
		}
	}
	d := follower(2)
	d.LeaderIs(2, at(10*ms))
	before := d.Stats()
	d.LeaderIs(3, at(time.Minute))
	if s := d.Stats(); s != before {
		t.Errorf("Stats() = %+v of a leader that was replaced, want %+v as before", s, before)
	}
}

// A leader that resigns names one member, and ends. Who voted for that one, and is bound no
// more, does not stand against it as soon as the leader's connections are gone: two writes to a
// slow disk fit in an election timeout. After that it does, and at once if it had to refuse.
func TestWhomTheLeaderHasNamedIsLeftAlone(t *testing.T) {
	vote := message(raftpb.MsgVote, 3, 6)
	vote.Context = []byte("CampaignTransfer")
	for name, tt := range map[string]struct {
		ticks   int
		refused bool
		want    bool
	}{
		"it voted":                         {0, false, false},
		"it voted an election timeout ago": {10, false, true},
		"it refused":                       {0, true, true},
	} {
		d := follower(2)
		d.Heard(vote, 5, at(10*ms))
		if tt.refused {
			d.Refused(at(10 * ms))
		}
		d.Gone(1, at(11*ms))
		for range tt.ticks {
			d.Tick(at(11*ms), bound)
		}
		stands := false
		for now := 11 * ms; now < time.Second; now += ms {
			stands = stands || d.Poll(at(now), three).Campaign
		}
		if stands != tt.want {
			t.Errorf("%s: it stands in the second after: %v, want %v", name, stands, tt.want)
		}
	}
}

func TestWays(t *testing.T) {
	names := []string{Silence.String(), Hint.String(), PreVote.String(), Transfer.String(), Resignation.String(), Way(NumWays).String()}
	if want := []string{"silence", "hint", "pre-vote", "transfer", "resignation", "unknown"}; !slices.Equal(names, want) {
		t.Errorf("the ways are called %v, want %v", names, want)
	}
}
