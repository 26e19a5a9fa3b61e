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

// restarted is a member that has started at 0 with a log.
func restarted(self uint64) *Detector {
	return New(Config{Self: self, ElectionTicks: 10, Heartbeat: beat, ElectionTimeout: time.Second}, at(0))
}

// Members that have restarted, and hear no leader, take turns as soon as their restart hold is over.
func TestAfterARestartMembersTakeTurnsOnceTheHoldIsOver(t *testing.T) {
	for self, want := range map[uint64][]time.Duration{
		1: {250 * ms, 325 * ms, 475 * ms, 775 * ms},
		2: {275 * ms, 375 * ms, 575 * ms, 975 * ms},
		3: {300 * ms, 425 * ms, 675 * ms},
	} {
		d, got := restarted(self), []time.Duration(nil)
		for now := time.Duration(0); now < time.Second; now += 5 * ms {
			k := three
			k.Bound = now < 250*ms
			if !d.Suspects(at(now)) {
				t.Fatalf("Suspects(%v) = false, want Poll called until an election timeout has passed", now)
			}
			switch do := d.Poll(at(now), k); {
			case do.Forget || do.Force:
				t.Errorf("Poll(%v) = %+v, though raft knows no leader", now, do)
			case do.Campaign:
				got = append(got, now)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("member %d campaigns at %v, want %v", self, got, want)
		}
		if d.Suspects(at(time.Second)) {
			t.Errorf("member %d is still polled after an election timeout, want silence to decide", self)
		}
		d.LeaderIs(2, at(time.Second))
		if s := d.Stats(); s.Hints != [NumWays]uint64{} || s.FailOvers != [NumWays]uint64{} || s.Forgets != 0 || s.FalseAlarms != 0 {
			t.Errorf("Stats() of member %d = %+v, want no suspicion, and no fail-over", self, s)
		}
	}
}

// A leader that is heard after a restart has nothing to fear, nor has the first one of all.
func TestAfterARestartALeaderIsLeftAlone(t *testing.T) {
	heard, fresh := restarted(1), New(Config{Self: 1, Fresh: true, ElectionTicks: 10, Heartbeat: beat, ElectionTimeout: time.Second}, at(0))
	heard.LeaderIs(2, at(100*ms))
	for now := 150 * ms; now < time.Second; now += 5 * ms {
		heard.wants(t, now, three, nothing)
		fresh.wants(t, now, three, nothing) // Tick decides
	}
	if s := heard.Stats(); s.Hints != [NumWays]uint64{} {
		t.Errorf("Stats() = %+v, want no suspicion", s)
	}
	// Where no promise binds, a leader still has the time of three heartbeats.
	free := restarted(1)
	free.wants(t, 3*beat-1, three, nothing)
	free.wants(t, 3*beat, three, campaign)
}

// A member that has restarted leaves an election alone that another one has begun.
func TestAfterARestartAnotherCandidateIsLeftAlone(t *testing.T) {
	d := restarted(1)
	d.Heard(message(raftpb.MsgPreVote, 2, 6), 5, at(240*ms))
	for now := 250 * ms; now < 365*ms; now += 5 * ms {
		d.wants(t, now, three, nothing)
	}
}
