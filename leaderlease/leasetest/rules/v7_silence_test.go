package rules

import (
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// often returns times, or few with -short.
func often(times, few int) int {
	if testing.Short() {
		return few
	}
	return times
}

// learning is a group with promises of 300 ms, heartbeats each 50 ms and an election timeout of
// a second, whose members have learnt that leader 1 is never silent.
func learning(t *testing.T) *story { return learningWith(t, 300*ms) }

func learningWith(t *testing.T, promise time.Duration) *story {
	t.Helper()
	s := begin(t, leasetest.Options{
		TickInterval: 50 * ms, ElectionTick: 20,
		Configure: func(_ uint64, cfg *leaderlease.Config) { cfg.Duration = promise },
		Node: func(uint64) leasetest.NodeOptions {
			return leasetest.NodeOptions{Async: true, Suspects: true, Learn: 2 * time.Second}
		},
	})
	s.lead(1)
	s.Run(3 * time.Second)
	return s
}

// successor runs until another than node 1 leads.
func (s *story) successor(limit time.Duration) *leasetest.Node {
	s.t.Helper()
	other := func() bool { l := s.Leader(); return l != nil && l.ID != 1 }
	if !s.RunUntil(limit, other) {
		s.t.Fatalf("nobody but node 1 leads within %v", limit)
	}
	return s.Leader()
}

// alarms counts what all nodes have suspected because of learnt silence.
func (s *story) alarms() (n uint64) {
	for _, node := range s.Nodes() {
		n += node.Suspicions().Suspicions[detector.LongSilence]
	}
	return n
}

// Nobody hears that a leader is stopped or cut off, and yet it is replaced when the promise to
// it has ended.
func TestV7LearntSilenceNeedsNoElectionTimeout(t *testing.T) {
	for name, die := range map[string]func(s *story){
		"stopped": func(s *story) { s.Node(1).Pause() },
		"cut off": func(s *story) { s.isolate(1) },
	} {
		s := learning(t)
		die(s)
		died := s.Now()
		if l := s.successor(election); s.Now()-died > 350*ms {
			t.Errorf("%s: node %d leads after %v, want 300ms and a few", name, l.ID, s.Now()-died)
		}
		s.disjoint()
	}
}

// What raft forgets because of silence, the guard does not: the leader lives, and its lease runs
// to its end, long after an alarm would be raised where there is no promise.
func TestV7LearntSilenceEndsNoPromise(t *testing.T) {
	s := learningWith(t, 600*ms)
	s.isolate(1)
	s.Run(400 * ms)
	s.wantStatus(1, core.Valid)
	s.successor(election)
	s.disjoint()
	if s.alarms() == 0 {
		t.Error("nobody was suspected because of silence")
	}
}

// One follower hears nothing of the leader any more, which the other does: no term changes.
func TestV7AloneInSilenceChangesNoTerm(t *testing.T) {
	s := learning(t)
	for range often(20, 5) {
		s.Net.Split([]uint64{1}, []uint64{2})
		s.Run(600 * ms)
		s.wantReign(1, 1)
		s.Net.Heal()
		s.Run(time.Minute)
		s.wantReign(1, 1)
	}
	// The first alarm is false, and what was learnt by it keeps the follower from more.
	if got := s.Node(2).Suspicions(); got.Suspicions[detector.LongSilence] != 1 || got.FalseSuspicions != 1 {
		t.Errorf("Suspicions() = %+v, want one false alarm", got)
	}
}

// Followers that are stopped hear nothing of a leader that lives.
func TestV7OwnPausesAreNoLearntSilence(t *testing.T) {
	s := learning(t)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 200 {
		n := s.Node(2 + uint64(i%2))
		n.Pause()
		s.Run(time.Duration(r.IntN(900)) * ms)
		n.Resume(r.IntN(2) == 0)
		s.Run(time.Duration(r.IntN(300)) * ms)
		s.wantReign(1, 1)
	}
	if n := s.alarms(); n != 0 {
		t.Errorf("%d alarms about a leader that was never silent", n)
	}
}

// Whoever leads stalls every five seconds, for longer than the promise: that costs an election
// for each member that has to learn of it, and nothing from then on.
func TestV7StallsAreLearnt(t *testing.T) {
	s := learning(t)
	for range often(200, 40) {
		l := s.Leader()
		l.Pause()
		s.Run(400 * ms)
		l.Resume(false)
		s.Run(5 * time.Second)
	}
	if l := s.Leader(); l == nil || l.Term() > 4 || !l.Valid() {
		t.Errorf("after stalls of 400 ms node %d leads term %d, want term 4 at most", l.ID, l.Term())
	}
	s.disjoint()
}

// A member that has been restarted knows nothing of the stalls of its leader, and suspects it at
// the next one. The other member that hears nothing knows them: no term changes.
func TestV7WhoKnowsStallsOutvotesWhoDoesNot(t *testing.T) {
	s := learning(t)
	stall := func() {
		l := s.Leader()
		l.Pause()
		s.Run(400 * ms)
		l.Resume(false)
		s.Run(5 * time.Second)
	}
	for range 6 {
		stall()
	}
	l, alarms := s.Leader(), uint64(0)
	term, novice := l.Term(), s.Node(l.ID%3+1)
	for range 10 {
		novice.Crash(0)
		s.Run(time.Second)
		novice.Restart()
		s.Run(5 * time.Second)
		stall()
		alarms += novice.Suspicions().Suspicions[detector.LongSilence]
	}
	s.wantReign(l.ID, term)
	if alarms != 10 {
		t.Errorf("%d alarms of a member that was restarted ten times, want ten", alarms)
	}
}

// All members wait for a processor, mostly for a little, and sometimes for long; messages take
// as they like.
func TestV7StarvedMembersElectNobody(t *testing.T) {
	s := learning(t)
	r := rand.New(rand.NewPCG(7, 7))
	s.Net.Plan = func(*raftpb.Message) []time.Duration {
		return []time.Duration{time.Duration(r.ExpFloat64() * float64(10*ms))}
	}
	for _, n := range s.Nodes() {
		var wait func()
		wait = func() {
			n.Pause()
			s.After(time.Duration(min(r.ExpFloat64()*40, 250))*ms, func() { n.Resume(r.IntN(2) == 0) })
			s.After(300*ms+time.Duration(r.IntN(300))*ms, wait)
		}
		s.After(0, wait)
	}
	s.Run(time.Duration(often(20, 4)) * time.Minute)
	if l := s.Leader(); l == nil || l.ID != 1 || l.Term() != 1 {
		t.Errorf("node %d leads term %d after %d alarms, want node 1 in term 1", l.ID, l.Term(), s.alarms())
	}
}

// With a leader that lives on a healthy network there is no alarm, however long it leads.
func TestV7NobodyIsSuspectedWithoutSilence(t *testing.T) {
	s := learning(t)
	for i := range often(60, 10) {
		s.write(1, uint64(i%3+1))
		s.Run(time.Minute)
	}
	s.wantReign(1, 1)
	if n := s.alarms(); n != 0 {
		t.Errorf("%d alarms without a fault, want none", n)
	}
	if role := s.Node(2).Role(); role != raft.StateFollower {
		t.Errorf("node 2 is %v, want a follower", role)
	}
}
