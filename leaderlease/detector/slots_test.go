package detector

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// campaigns returns at which of so many ticks a member of 1, 2 and 3 campaigns.
func campaigns(d *Detector, ticks int, k State) (all []int) {
	for i := range ticks {
		if d.Tick(at(0), k).Campaign {
			all = append(all, i+1)
		}
	}
	return all
}

func TestSlotsAfterSilence(t *testing.T) {
	for _, tt := range []struct {
		name  string
		self  uint64
		fresh bool
		lost  uint64
		k     State
		want  []int
	}{
		{"the lowest that outlives the leader is first", 2, false, 1, three, []int{11, 12, 13, 17, 18, 19}},
		{"then the next", 3, false, 1, three, []int{14, 15, 16, 20, 21}},
		{"the leader that was lost has a place behind the lower ones", 1, false, 1, three, []int{11, 12, 13, 17, 18, 19}},
		{"and none if it is the highest", 3, false, 3, three, nil},
		{"no leader was known: all take turns", 3, false, 0, three, []int{17, 18, 19}},
		{"a leader that is no voter takes no turn from them", 1, false, 9, three, []int{11, 12, 13, 20, 21}},
		{"alone it does at once", 1, false, 0, State{Voters: []uint64{1}}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}},
		{"a new cluster: the lowest begins", 1, true, 0, three, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}},
		{"a new cluster: the second follows", 2, true, 0, three, []int{4, 8, 12, 16, 20}},
		{"a new cluster that has had a leader", 1, true, 2, three, []int{11, 12, 13, 17, 18, 19}},
		{"not a learner", 4, false, 0, three, nil},
		{"not the leader", 1, false, 0, State{Voters: three.Voters, Leads: true}, nil},
		{"not before it has applied the first entries", 1, true, 0, State{Voters: three.Voters, Away: true}, nil},
		{"not while it stands already, alone", 1, false, 0, State{Voters: []uint64{1}, Candidate: true}, nil},
		{"not while it stands already, in a new cluster", 1, true, 0, State{Voters: three.Voters, Candidate: true}, nil},
		{"not against its promise", 1, false, 0, State{Voters: []uint64{1}, Bound: true}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := New(Config{Self: tt.self, Fresh: tt.fresh, ElectionTicks: 10}, at(0))
			d.LeaderIs(tt.lost, at(0))
			if got := campaigns(d, 21, tt.k); !slices.Equal(got, tt.want) {
				t.Errorf("it campaigns at ticks %v, want %v", got, tt.want)
			}
		})
	}
}

// A candidate with a rival campaigns again in its first two slots. From then on raft
// decides, and where there is none raft does at once.
func TestASplitVoteIsTriedAgainTwice(t *testing.T) {
	for self, want := range map[uint64][]int{2: {11, 17}, 3: {14, 20}} {
		for _, split := range []bool{false, true} {
			d := New(Config{Self: self, ElectionTicks: 10}, at(0))
			d.LeaderIs(1, at(0))
			var got []int
			for tick := range 1000 {
				if split {
					d.Heard(message(raftpb.MsgVote, 5-self, 6), 6, at(0))
				}
				if d.Tick(at(0), State{Voters: three.Voters, Candidate: true}).Campaign {
					got = append(got, tick+1)
				}
			}
			if split && !slices.Equal(got, want) || !split && got != nil {
				t.Errorf("member %d, a candidate, campaigns at ticks %v, want %v if it has a rival: %v", self, got, want, split)
			}
		}
	}
}

// One election, and not each that a rival may have been in: a candidate that campaigned again waits for the
// next request.
func TestARivalCountsOnce(t *testing.T) {
	d := New(Config{Self: 2, ElectionTicks: 10}, at(0))
	d.LeaderIs(1, at(0))
	d.Heard(message(raftpb.MsgVote, 3, 6), 6, at(0))
	if got := campaigns(d, 1000, State{Voters: three.Voters, Candidate: true}); !slices.Equal(got, []int{11}) {
		t.Errorf("it campaigns at ticks %v, want 11", got)
	}
}

// A voter defers for an election timeout of ticks, and then campaigns in its slots. A
// sign of life ends that.
func TestAVoterDefersForAnElectionTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		term  uint64
		alive bool
		want  []int
	}{
		"it votes":         {6, false, []int{23, 24, 25}},
		"it cannot vote":   {5, false, []int{12, 13, 17, 18, 19, 23, 24, 25}},
		"the leader lives": {6, true, []int{22, 23, 24, 28, 29, 30}},
	} {
		d := New(Config{Self: 2, ElectionTicks: 10}, at(0))
		d.LeaderIs(1, at(0))
		campaigns(d, 11, three)
		d.Heard(message(raftpb.MsgVote, 3, tt.term), 5, at(0))
		if tt.alive {
			d.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(0))
		}
		got := campaigns(d, tt.want[len(tt.want)-1]-11, three)
		for i := range got {
			got[i] += 11
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: it campaigns at ticks %v, want %v", name, got, tt.want)
		}
	}
}

// A leader that hands over after a long time has heard no sign of life for as long. It has voted for
// its successor, and leaves that the time to be elected.
func TestALeaderThatHandsOverDefers(t *testing.T) {
	d := New(Config{Self: 1, ElectionTicks: 10}, at(0))
	d.LeaderIs(1, at(0))
	campaigns(d, 1000, State{Voters: three.Voters, Leads: true})
	vote := message(raftpb.MsgVote, 3, 6)
	vote.Context = []byte(core.CampaignTransfer)
	d.Heard(vote, 5, at(0))
	if got := campaigns(d, 9, three); got != nil {
		t.Errorf("it campaigns %v ticks after its vote for the transferee", got)
	}
	if got := campaigns(d, 8, three); len(got) == 0 {
		t.Error("it never campaigns again")
	}
}

// Turns are as long, however short ticks are.
func TestSlotsHaveAMinimumTime(t *testing.T) {
	for tick, want := range map[time.Duration][]int{
		25 * ms: {41, 47, 49}, 50 * ms: {21, 24, 25}, 100 * ms: {11, 12, 13}, 500 * ms: {3, 4, 5},
	} {
		d := New(Config{Self: 2, ElectionTicks: int(time.Second / tick), ElectionTimeout: time.Second}, at(0))
		d.LeaderIs(1, at(0))
		if got := campaigns(d, int(time.Second/tick)+int(max(300*ms, 3*tick)/tick), three); !slices.Equal(got, want) {
			t.Errorf("a tick of %v: it campaigns at ticks %v, want %v", tick, got, want)
		}
	}
}

func TestSignsOfLife(t *testing.T) {
	for _, tt := range []struct {
		typ  raftpb.MessageType
		term uint64
		want []int
	}{
		{raftpb.MsgHeartbeat, 5, nil},
		{raftpb.MsgApp, 6, nil},
		{raftpb.MsgSnap, 5, nil},
		{raftpb.MsgHeartbeat, 4, []int{1, 2}}, // of a leader that was deposed
		{raftpb.MsgVote, 5, []int{1, 2}},
		{raftpb.MsgHeartbeatResp, 5, []int{1, 2}},
	} {
		d := New(Config{Self: 1, ElectionTicks: 10}, at(0))
		d.LeaderIs(2, at(0))
		campaigns(d, 10, three)
		d.Heard(message(tt.typ, 2, tt.term), 5, at(0))
		if heard := tt.want == nil; (d.Silence() == 0) != heard {
			t.Errorf("after %v of term %d: Silence() = %d, want 0 if that was a sign of life: %v", tt.typ, tt.term, d.Silence(), heard)
		}
		if got := campaigns(d, 2, three); !slices.Equal(got, tt.want) {
			t.Errorf("after %v of term %d: it campaigns at %v, want %v", tt.typ, tt.term, got, tt.want)
		}
	}
}

// A member that does not take part yet counts the ticks: once it does it is in step with
// the others.
func TestTheFirstSlotCountsFromTheStart(t *testing.T) {
	d := New(Config{Self: 2, Fresh: true, ElectionTicks: 10}, at(0))
	if got := campaigns(d, 3, State{Voters: []uint64{1, 2}, Away: true}); got != nil {
		t.Fatalf("it campaigns at %v before it takes part", got)
	}
	if got := campaigns(d, 1, State{Voters: []uint64{1, 2}}); !slices.Equal(got, []int{1}) {
		t.Errorf("it campaigns at %v, want at once, as the turn of the first one is over", got)
	}
}

// Which way a fail-over went, and how long each part took.
func TestWaysOfFailOvers(t *testing.T) {
	vote := message(raftpb.MsgVote, 3, 6)
	vote.Context = []byte("CampaignTransfer")
	word := message(raftpb.MsgTimeoutNow, 1, 5)
	core.MarkResignation(word)
	for name, tt := range map[string]struct {
		do   func(d *Detector)
		at   time.Duration
		want FailOver
	}{
		"silence":           {func(*Detector) {}, 1060 * ms, FailOver{Detection: time.Second, Election: 60 * ms}},
		"others' silence":   {func(*Detector) {}, 900 * ms, FailOver{Detection: 900 * ms}},
		"it was asked":      {func(d *Detector) { d.Heard(message(raftpb.MsgTimeoutNow, 1, 5), 5, at(40*ms)) }, 48 * ms, FailOver{Cause: Transfer, Election: 8 * ms}},
		"the leader ended":  {func(d *Detector) { d.Heard(word, 5, at(40*ms)) }, 48 * ms, FailOver{Cause: Resignation, Election: 8 * ms}},
		"another was asked": {func(d *Detector) { d.Heard(vote, 5, at(40*ms)) }, 45 * ms, FailOver{Cause: Transfer, Election: 5 * ms}},
		"asked in vain": {func(d *Detector) {
			d.Heard(vote, 5, at(40*ms))
			d.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(50*ms))
		}, 1150 * ms, FailOver{Detection: time.Second, Election: 100 * ms}},
		"another was first, though it was hinted at": {func(d *Detector) { d.Gone(1, at(10*ms)) }, 260 * ms, FailOver{Cause: ConnClosed, Detection: 10 * ms, Election: 250 * ms}},
		"a campaign that was none of a transfer":     {func(d *Detector) { d.Heard(message(raftpb.MsgVote, 3, 6), 5, at(40*ms)) }, 50 * ms, FailOver{Detection: 50 * ms}},
	} {
		d := follower(2)
		tt.do(d)
		d.LeaderIs(3, at(tt.at))
		if s := d.Stats(); s.Last != tt.want || s.FailOvers[tt.want.Cause] != 1 {
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

// A leader that resigns names one member, and ends. A voter for that one that is bound no
// more, does not campaign against it as soon as the leader's connections are gone: two writes to a
// slow disk fit in an election timeout. After that it does, and at once if it had to refuse.
func TestTheTransfereeIsLeftAlone(t *testing.T) {
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
	names := []string{Silence.String(), ConnClosed.String(), PreVote.String(), Transfer.String(), Resignation.String(), Cause(NumCauses).String()}
	if want := []string{"silence", "hint", "pre-vote", "transfer", "resignation", "unknown"}; !slices.Equal(names, want) {
		t.Errorf("the ways are called %v, want %v", names, want)
	}
}

// restarted is a member that has started at 0 with a log.
func restarted(self uint64) *Detector {
	return New(Config{Self: self, ElectionTicks: 10, Heartbeat: beat, ElectionTimeout: time.Second}, at(0))
}

// Members that have restarted, and hear no leader, campaign in their slots as soon as their restart hold is over.
func TestAfterARestartMembersCampaignInSlots(t *testing.T) {
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
		if s := d.Stats(); s.Suspicions != [NumCauses]uint64{} || s.FailOvers != [NumCauses]uint64{} || s.Forgets != 0 || s.FalseSuspicions != 0 {
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
	if s := heard.Stats(); s.Suspicions != [NumCauses]uint64{} {
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
