package detector

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

const (
	ms   = time.Millisecond
	beat = 50 * ms
)

var (
	three    = State{Voters: []uint64{1, 2, 3}}
	bound    = State{Voters: []uint64{1, 2, 3}, Bound: true}
	nothing  = Decision{}
	forget   = Decision{Forget: true}
	campaign = Decision{Campaign: true}
	both     = Decision{Forget: true, Campaign: true}
)

// at is an instant of a test.
func at(d time.Duration) time.Time { return time.Unix(0, 0).Add(d) }

// follower is a member that has heard of leader 1 at 0.
func follower(self uint64) *Detector {
	d := New(Config{Self: self, ElectionTicks: 10, Heartbeat: beat, ElectionTimeout: time.Second}, at(0))
	d.LeaderIs(1, at(0))
	return d
}

func message(t raftpb.MessageType, from, term uint64) *raftpb.Message {
	return &raftpb.Message{Type: t.Enum(), From: new(from), Term: new(term)}
}

func (d *Detector) wants(t *testing.T, now time.Duration, k State, want Decision) {
	t.Helper()
	if got := d.Poll(at(now), k); got != want {
		t.Errorf("Poll(%v) = %+v, want %+v", now, got, want)
	}
}

// The leader is forgotten when the promise ends and not before, and the members campaign
// one after the other, round and round.
func TestASuspicionIsActedUponWhenThePromiseEnds(t *testing.T) {
	first, second := follower(2), follower(3)
	for _, d := range []*Detector{first, second} {
		d.wants(t, 10*ms, three, nothing) // nothing is suspected
		d.Gone(1, at(10*ms))
		d.Gone(1, at(100*ms)) // once more changes nothing
		d.wants(t, 249*ms, bound, nothing)
	}
	first.wants(t, 250*ms, three, both)
	first.wants(t, 255*ms, three, nothing)
	first.wants(t, 275*ms, three, nothing) // the other's slot
	first.wants(t, 300*ms, three, campaign)
	second.wants(t, 250*ms, three, forget)
	second.wants(t, 270*ms, three, nothing)
	second.wants(t, 275*ms, three, campaign)
	first.LeaderIs(3, at(310*ms))
	want := FailOver{Cause: ConnClosed, Detection: 10 * ms, Promise: 240 * ms, Election: 60 * ms}
	if s := first.Stats(); s.Last != want || s.Suspicions[ConnClosed] != 1 || s.Forgets != 1 || s.FalseSuspicions != 0 {
		t.Errorf("Stats() = %+v, want one hint, one leader forgotten, and %+v", s, want)
	}
	first.wants(t, 320*ms, three, nothing)
	first.Committed(at(314 * ms))
	first.Committed(at(320 * ms)) // and on and on
	want.Commit = 4 * ms
	if s := first.Stats(); s.Last != want || s.FailOvers != [NumCauses]uint64{ConnClosed: 1} {
		t.Errorf("Stats() = %+v, want %+v, by one hint", s, want)
	}
}

func TestWhatIsNoSuspicion(t *testing.T) {
	for name, do := range map[string]func(d *Detector) State{
		"somebody else is gone":      func(d *Detector) State { d.Gone(3, at(0)); return three },
		"the member leads by itself": func(d *Detector) State { d.LeaderIs(2, at(0)); d.Gone(2, at(0)); return three },
		"nobody was known to lead":   func(d *Detector) State { *d = *New(d.cfg, at(0)); d.Gone(0, at(0)); return three },
		"it has begun to lead":       func(d *Detector) State { d.Gone(1, at(0)); return State{Voters: three.Voters, Leads: true} },
		"it does not take part":      func(d *Detector) State { d.Gone(1, at(0)); return State{Voters: three.Voters, Away: true} },
		"it is a learner":            func(d *Detector) State { d.Gone(1, at(0)); return State{Voters: []uint64{1, 3}} },
		"an election timeout ago":    func(d *Detector) State { d.Gone(1, at(-time.Second+300*ms)); return three },
		"a later heartbeat ended it": func(d *Detector) State {
			d.Gone(1, at(0))
			d.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(beat))
			return three
		},
		"later entries ended it": func(d *Detector) State {
			d.Gone(1, at(0))
			d.Heard(message(raftpb.MsgApp, 1, 6), 5, at(beat))
			return three
		},
		"another leader is known then": func(d *Detector) State { d.Gone(1, at(0)); d.LeaderIs(3, at(1)); return three },
	} {
		t.Run(name, func(t *testing.T) {
			d := follower(2)
			k := do(d)
			d.wants(t, 300*ms, k, nothing)
		})
	}
}

// A message that was on its way when the suspicion began is no sign of life, nor are those of others, nor
// what a leader says that was deposed.
func TestASuspicionStands(t *testing.T) {
	for name, say := range map[string]struct {
		m  *raftpb.Message
		at time.Duration
	}{
		"a heartbeat was under way": {message(raftpb.MsgHeartbeat, 1, 5), beat - 1},
		"a deposed leader's":        {message(raftpb.MsgHeartbeat, 1, 4), 2 * beat},
		"another member's answer":   {message(raftpb.MsgAppResp, 3, 5), 2 * beat},
		"the next leader's first":   {message(raftpb.MsgApp, 3, 6), 2 * beat},
	} {
		d := follower(2)
		d.Gone(1, at(0))
		d.Heard(say.m, 5, at(say.at))
		d.LeaderIs(raft.None, at(say.at)) // as raft says once it has forgotten
		if got := d.Poll(at(250*ms), three); got != both || d.Stats().FalseSuspicions != 0 {
			t.Errorf("%s: Poll() = %+v, want %+v", name, got, both)
		}
	}
}

func TestAFalseSuspicionIsCounted(t *testing.T) {
	d := follower(2)
	d.Gone(1, at(0))
	for now := beat; now <= 5*beat; now += beat {
		d.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(now))
	}
	if s := d.Stats(); s.FalseSuspicions != 1 || d.Suspects(at(beat)) {
		t.Errorf("Stats() = %+v, want one false alarm", s)
	}
	d.Gone(1, at(time.Second)) // and the next one counts as any
	d.wants(t, 1250*ms, three, both)
}

// What the next leader says is no sign of life of the one before: that was replaced, as it was
// suspected to be.
func TestTheNextLeaderRefutesNoSuspicion(t *testing.T) {
	d := follower(2)
	d.Gone(1, at(10*ms))
	d.wants(t, 250*ms, three, both)
	d.Heard(message(raftpb.MsgApp, 3, 6), 6, at(300*ms))
	d.LeaderIs(3, at(300*ms))
	want := FailOver{Cause: ConnClosed, Detection: 10 * ms, Promise: 240 * ms, Election: 50 * ms}
	if s := d.Stats(); s.Last != want || s.FalseSuspicions != 0 {
		t.Errorf("Stats() = %+v, want no false alarm, and %+v", s, want)
	}
}

// A candidate that campaigned again would take another term, and the votes of its own election
// away. Unless another one campaigns too, and that has had the time: then the vote
// was split.
func TestACandidateDoesNotCampaignAgain(t *testing.T) {
	stands := State{Voters: three.Voters, Candidate: true}
	for _, split := range []bool{false, true} {
		d := follower(2)
		d.Gone(1, at(0))
		d.wants(t, 250*ms, three, both)
		again := nothing
		if split {
			d.Heard(message(raftpb.MsgVote, 3, 6), 6, at(280*ms))
			again = campaign
		}
		d.wants(t, 300*ms, stands, nothing)
		d.wants(t, 400*ms, stands, nothing)
		d.wants(t, 599*ms, stands, nothing) // the other's turn
		d.wants(t, 600*ms, stands, again)
		d.wants(t, 605*ms, stands, nothing)
	}
}

// A member that votes for another after a suspicion defers while that one may be elected. A member
// in the requested term does not vote.
func TestAVoterDefers(t *testing.T) {
	for term, want := range map[uint64]Decision{5: campaign, 6: nothing} {
		d := follower(2)
		d.Gone(1, at(0))
		d.wants(t, 250*ms, three, both)
		d.Heard(message(raftpb.MsgVote, 3, term), 5, at(260*ms))
		d.wants(t, 300*ms, three, want)
		d.wants(t, 600*ms, three, want)
	}
}

// Turns are twice as long each time all have had theirs.
func TestSlotsAfterASuspicion(t *testing.T) {
	for self, want := range map[uint64][]time.Duration{
		2: {250 * ms, 300 * ms, 400 * ms, 600 * ms},
		3: {275 * ms, 350 * ms, 500 * ms, 800 * ms},
	} {
		d, got := follower(self), []time.Duration(nil)
		d.Gone(1, at(0))
		for now := 250 * ms; now < time.Second; now += 5 * ms {
			if d.Poll(at(now), three).Campaign {
				got = append(got, now)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("member %d campaigns at %v, want %v", self, got, want)
		}
	}
}

// Where no promise binds the member, its leader's heartbeats do: a suspicion alone is not acted upon.
func TestALeaderThatIsHeardIsNotForgotten(t *testing.T) {
	d := follower(2)
	d.Gone(1, at(0))
	d.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(10*ms)) // it may have been under way
	d.wants(t, 10*ms+3*beat-1, three, nothing)
	d.wants(t, 10*ms+3*beat, three, both)
}

// One follower that has missed the closed connection does not veto for an election timeout: another one
// that asks for its pre-vote is believed, if the leader is silent here, too. The lease lets
// the request in once the promise has ended.
func TestAPreVoteIsASuspicion(t *testing.T) {
	for _, tt := range []struct {
		name string
		from uint64
		at   time.Duration
		want Decision
	}{
		{"after three heartbeats' time", 3, 3 * beat, forget},
		{"before", 3, 3*beat - 1, nothing},
		{"the leader's own", 1, 3 * beat, nothing},
	} {
		d := follower(2)
		got := d.Heard(message(raftpb.MsgPreVote, tt.from, 6), 5, at(tt.at))
		if suspects := d.Suspects(at(tt.at)); got != tt.want || suspects != tt.want.Forget {
			t.Errorf("%s: Heard() = %+v, and it suspects its leader: %v, want %+v", tt.name, got, suspects, tt.want)
		}
	}
	d := follower(3)
	d.Heard(message(raftpb.MsgPreVote, 2, 6), 5, at(260*ms))
	d.wants(t, 265*ms, three, nothing) // the first one's turn
	d.wants(t, 285*ms, three, nothing) // this one's, but the first one campaigns
	d.wants(t, 359*ms, three, nothing)
	d.wants(t, 390*ms, three, campaign) // in vain, it seems
	suspecting := follower(3)
	suspecting.Gone(1, at(0))
	for _, want := range []Decision{nothing, forget} {
		if got := suspecting.Heard(message(raftpb.MsgPreVote, 2, 6), 5, at(3*beat-1)); got != want {
			t.Errorf("Heard() of a member that suspects its leader = %+v, want %+v", got, want)
		}
		suspecting.heard = at(-1)
	}
	if d.Stats().Suspicions[PreVote] != 1 || d.Stats().Forgets != 1 {
		t.Errorf("Stats() = %+v, want one hint by a pre-vote", d.Stats())
	}
}

// Members that ask each other for pre-votes do not keep each other's suspicion up: after an
// election timeout silence decides, and its slots are as long as slow disks need.
func TestASuspicionIsNotRenewedByOthers(t *testing.T) {
	d := follower(2)
	d.Gone(1, at(0))
	for now := 250 * ms; now < 3*time.Second; now += 50 * ms {
		d.Heard(message(raftpb.MsgPreVote, 3, 6), 5, at(now))
		d.Gone(1, at(now))
		if do := d.Poll(at(now), three); do != nothing && now >= time.Second {
			t.Fatalf("Poll(%v) = %+v, want nothing after an election timeout", now, do)
		}
	}
	if s := d.Stats(); s.Suspicions != [NumCauses]uint64{ConnClosed: 1} || s.Forgets != 1 {
		t.Errorf("Stats() = %+v, want one hint", s)
	}
	d.Heard(message(raftpb.MsgHeartbeat, 1, 6), 5, at(3*time.Second))
	d.Gone(1, at(3100*ms))
	d.wants(t, 3350*ms, three, both)
}

// Many closed connections, while heartbeats come in: no leader is forgotten.
func TestManyClosedConnectionsAreHarmless(t *testing.T) {
	d := follower(2)
	for now := time.Duration(0); now < time.Minute; now += 5 * ms {
		k := bound
		d.Gone(1, at(now))
		if now%(100*ms) == 0 {
			d.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(now))
		}
		d.wants(t, now, k, nothing)
	}
	// It is over, and the leader dies with the last of them.
	d.Gone(1, at(time.Minute))
	d.wants(t, time.Minute+250*ms, three, both)
}
