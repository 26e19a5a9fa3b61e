package detector

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

var (
	force  = Decision{Campaign: true, Force: true}
	forced = Decision{Forget: true, Campaign: true, Force: true}
)

// A proof waits for no heartbeats: the first member campaigns at once, by the message, and the next
// one a slot later, which is twice as long as another. After that it is as after any suspicion.
func TestADeathIsActedUponAtOnce(t *testing.T) {
	first, second := follower(2), follower(3)
	for _, d := range []*Detector{first, second} {
		d.Gone(1, at(9*ms)) // the connections end first
		d.ProcessDied(own(), at(10*ms))
		d.ProcessDied(own(), at(30*ms)) // once more changes nothing
		if !d.Suspects(at(10 * ms)) {
			t.Error("Suspects() = false, want true")
		}
	}
	first.wants(t, 10*ms, three, forced)
	first.wants(t, 15*ms, three, nothing)
	first.wants(t, 110*ms, three, campaign)
	second.wants(t, 10*ms, three, forget)
	second.wants(t, 55*ms, three, nothing)
	second.wants(t, 60*ms, three, force)
	first.LeaderIs(3, at(120*ms))
	want := FailOver{Cause: ProcessDied, Detection: 10 * ms, Election: 110 * ms}
	if s := first.Stats(); s.Last != want || s.Suspicions[ProcessDied] != 1 || s.FailOvers[ProcessDied] != 1 || s.FalseSuspicions != 0 {
		t.Errorf("Stats() = %+v, want one death and %+v", s, want)
	}
	first.wants(t, 130*ms, three, nothing)
}

// A member defers for an election timeout if another one has campaigned after the death.
func TestAForcedCampaignIsLeftAlone(t *testing.T) {
	d := follower(3)
	d.ProcessDied(own(), at(10*ms))
	d.wants(t, 10*ms, three, forget)
	vote := message(raftpb.MsgVote, 2, 6)
	vote.Context = []byte(core.CampaignTransfer)
	d.Heard(vote, 5, at(12*ms))
	d.wants(t, 35*ms, three, nothing)
	d.LeaderIs(2, at(40*ms))
	if got, want := d.Stats().Last, (FailOver{Cause: ProcessDied, Detection: 10 * ms, Election: 30 * ms}); got != want {
		t.Errorf("Stats().Last = %+v, want %+v", got, want)
	}
}

// A member does not campaign if it is bound, campaigns already, or is no voter.
func TestMembersThatMayNotCampaignAfterADeath(t *testing.T) {
	d := follower(2)
	d.ProcessDied(own(), at(10*ms))
	d.wants(t, 10*ms, bound, nothing)
	d.wants(t, 10*ms, State{Voters: []uint64{1, 3}}, nothing)
	d.wants(t, 10*ms, State{Voters: three.Voters, Candidate: true}, forget)
	d.wants(t, 15*ms, three, force)
}

// No pre-vote has supported a forced campaign: once a slot is as long as an election it
// campaigns again, with pre-votes, and then has the time that every candidate has.
func TestAForcedCampaignIsRepeatedOnce(t *testing.T) {
	d := follower(2)
	candidate := State{Voters: three.Voters, Candidate: true}
	d.ProcessDied(own(), at(10*ms))
	d.wants(t, 10*ms, three, forced)
	d.wants(t, 309*ms, candidate, nothing)
	d.wants(t, 310*ms, candidate, campaign)
	d.wants(t, 710*ms, candidate, nothing)
}

// What the dead have sent, and is read later, is no sign of life. A leader of a later term is one,
// be it the same member.
func TestWhatEndsTheSuspicionOfADeath(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(d *Detector)
		want Decision
	}{
		"a heartbeat of the dead": {func(d *Detector) { d.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(200*ms)) }, forced},
		"an append of the dead":   {func(d *Detector) { d.Heard(message(raftpb.MsgApp, 1, 5), 5, at(200*ms)) }, forced},
		"its own message":         {func(d *Detector) { d.Heard(own(), 5, at(200*ms)) }, forced},
		"the next process leads":  {func(d *Detector) { d.Heard(message(raftpb.MsgHeartbeat, 1, 6), 5, at(20*ms)) }, nothing},
		"another leads":           {func(d *Detector) { d.LeaderIs(3, at(20*ms)) }, nothing},
	} {
		d := follower(2)
		d.ProcessDied(own(), at(10*ms))
		tt.do(d)
		if got := d.Poll(at(210*ms), three); got != tt.want {
			t.Errorf("%s: Poll() = %+v, want %+v", name, got, tt.want)
		}
		if s := d.Stats(); s.FalseSuspicions != 0 {
			t.Errorf("%s: FalseSuspicions = %d, want 0", name, s.FalseSuspicions)
		}
	}
	d := follower(2)
	for _, peer := range []uint64{0, 2, 3} {
		if d.ProcessDied(death(peer), at(10*ms)); d.Suspects(at(10 * ms)) {
			t.Errorf("Suspects() after the death of %d = true, want false", peer)
		}
	}
}

// What the dead have sent, and is stepped after raft was told to forget them, has raft take them
// for the leader once more, of the same term: that is no sign of life either.
func TestTheDeadLeadOnceMore(t *testing.T) {
	d := follower(3)
	d.ProcessDied(own(), at(10*ms))
	d.wants(t, 10*ms, three, forget)
	d.LeaderIs(0, at(10*ms))
	d.Heard(message(raftpb.MsgApp, 1, 5), 5, at(12*ms))
	d.LeaderIs(1, at(12*ms))
	d.wants(t, 61*ms, three, force)
}

// The first member lacks entries: the next one campaigns in its slot, because of the same death.
func TestTheFirstSlotIsInVain(t *testing.T) {
	d := follower(3)
	d.ProcessDied(own(), at(10*ms))
	d.wants(t, 10*ms, three, forget)
	vote := message(raftpb.MsgVote, 2, 6)
	vote.Context = []byte(core.CampaignTransfer)
	d.Heard(vote, 5, at(12*ms))
	d.Refused(at(12 * ms))
	d.wants(t, 62*ms, three, force)
	d.LeaderIs(3, at(70*ms))
	if got, want := d.Stats().Last, (FailOver{Cause: ProcessDied, Detection: 10 * ms, Promise: 2 * ms, Election: 58 * ms}); got != want {
		t.Errorf("Stats().Last = %+v, want %+v", got, want)
	}
}

// The same member leads a later term, for which this one has voted.
func TestTheNextProcessLeads(t *testing.T) {
	d := follower(3)
	d.ProcessDied(own(), at(10*ms))
	d.wants(t, 10*ms, three, forget)
	d.Heard(message(raftpb.MsgApp, 1, 6), 6, at(12*ms))
	d.LeaderIs(1, at(12*ms))
	d.wants(t, 61*ms, three, nothing)
}

// A member's own message is no transfer: a refused vote after it changes nothing.
func TestADeathIsNoTransfer(t *testing.T) {
	d := follower(2)
	d.ProcessDied(own(), at(10*ms))
	d.wants(t, 10*ms, three, forced)
	d.Heard(own(), 5, at(10*ms))
	d.Refused(at(15 * ms))
	d.wants(t, 20*ms, three, nothing)
}

// The death is reported after the suspicion, as when a core was written first: that was right, whatever is
// read of the dead after it, and what this member has made of the word is no message of theirs.
func TestTheSuspicionBeforeADeathWasNotFalse(t *testing.T) {
	l := learner()
	l.hears(t, 11*time.Second)
	if l.alarm() == 0 {
		t.Fatal("no silence is an alarm")
	}
	l.ProcessDied(own(), at(l.now))
	l.Heard(own(), 5, at(l.now))
	l.Heard(message(raftpb.MsgHeartbeat, 1, 5), 5, at(l.now))
	if s := l.Stats(); s.Suspicions[LongSilence] != 1 || s.FalseSuspicions != 0 || l.adaptive.doubled != 0 {
		t.Errorf("%+v, doubts %d, want one alarm that was not false", s, l.adaptive.doubled)
	}
}

// own is the message of a death of the leader.
func own() *raftpb.Message { return death(1) }

// death is that of a death of a peer that has led term 5.
func death(peer uint64) *raftpb.Message {
	m := message(raftpb.MsgTimeoutNow, peer, 5)
	core.MarkProcessDied(m)
	return m
}
