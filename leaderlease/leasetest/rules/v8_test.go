package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// mourning is a group of members that take turns, or do not, in which node 1 leads.
func mourning(t *testing.T, voters int, suspects, async bool) *story {
	t.Helper()
	opts := leasetest.Options{Node: func(uint64) leasetest.NodeOptions {
		return leasetest.NodeOptions{Async: async, Suspects: suspects}
	}}
	for id := range uint64(voters) {
		opts.Voters = append(opts.Voters, id+1)
	}
	s := begin(t, opts)
	s.lead(1)
	s.Run(250 * ms)
	return s
}

// The leader is replaced within a few messages of the word that it is dead, and not when the
// promises have ended, also if only one member hears of it.
func TestV8AnObituaryVoidsThePromise(t *testing.T) {
	for i := range 8 {
		suspects, async, all := i&1 != 0, i&2 != 0, i&4 != 0
		s := mourning(t, 3, suspects, async)
		dead := s.Node(1).ProcessID()
		s.Node(1).Crash(0)
		if !s.Node(2).Bound() || !s.Node(3).Bound() {
			t.Fatal("Bound() of nodes 2 and 3 = false, want true")
		}
		s.Node(2).ProcessDied(1, dead)
		if all {
			s.Run(2 * ms)
			s.Node(3).ProcessDied(1, dead)
		}
		s.Run(20 * ms)
		s.disjoint()
		if n := s.Node(2); n.Role() != raft.StateLeader {
			t.Errorf("suspects: %v, async: %v, all: %v: Role() of node 2 = %v after 20 ms, want StateLeader", suspects, async, all, n.Role())
		}
	}
}

// Who has the next turn stands where the first is dead, too, or bound by its restart.
func TestV8TheNextTurn(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		s := mourning(t, 5, true, true)
		dead := s.Node(1).ProcessID()
		s.Node(1).Crash(0)
		s.Node(2).Crash(0)
		if restarts {
			s.Node(2).Restart()
		}
		for id := uint64(2); id <= 5; id++ {
			s.Node(id).ProcessDied(1, dead)
		}
		s.Run(130 * ms)
		s.disjoint()
		if r := s.Node(3).Role(); r != raft.StateLeader {
			t.Errorf("node 2 restarts: %v: Role() of node 3 = %v after 130 ms, want StateLeader", restarts, r)
		}
	}
}

// The word that a former process is dead is true, and comes late: the member has started again,
// leads again, and its lease is valid. Taken for the death of who leads now, it would elect
// another beside that lease, and what that one commits would be missing from what is read.
func TestV8ALateObituaryOfAFormerProcess(t *testing.T) {
	s := mourning(t, 3, false, true)
	former := s.Node(1).ProcessID()
	s.Node(1).Crash(0)
	s.Run(2 * election)
	s.Node(1).Restart()
	s.Run(election)
	s.Leader().Transfer(1)
	s.Run(250 * ms)
	term := s.Node(1).Term()
	old := s.write(1, 7)
	s.Run(250 * ms)
	s.isolate(1)
	s.Node(2).ProcessDied(1, former)
	s.Run(50 * ms)
	s.wantReign(1, term)
	newest := old
	if s.Node(2).Role() == raft.StateLeader {
		newest = s.write(2, 7)
	}
	if got, status := s.Node(1).TryRead(7); status == core.Valid && got < newest {
		t.Errorf("node 1 serves version %d of a key whose version is %d", got, newest)
	}
	s.disjoint()
}

// A voter that has just started does not know whom it has promised something: no obituary frees
// it before the longest promise has ended.
func TestV8TheRestartHoldStays(t *testing.T) {
	s := mourning(t, 3, false, true)
	s.Node(2).Crash(0)
	s.Node(2).Restart()
	s.Run(200 * ms) // it promises once more
	dead := s.Node(1).ProcessID()
	s.Node(1).Crash(0)
	s.Node(2).ProcessDied(1, dead)
	s.Node(3).ProcessDied(1, dead)
	s.Run(500 * ms)
	if n := s.Leader(); n != nil || !s.Node(2).Bound() {
		t.Errorf("node %v leads 700 ms after the restart of node 2, or that is free, want neither", n)
	}
	if !s.RunUntil(2*election, func() bool { return s.Leader() != nil }) {
		t.Error("nobody leads after two election timeouts")
	}
	s.disjoint()
}

// Heartbeats of the dead are read after the obituary, by one that had not heard of the
// reign: they bind nobody.
func TestV8WhatTheDeadHaveSent(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(3)
	s.Node(3).Transfer(1)
	s.Net.Hold = to(2, raftpb.MsgHeartbeat)
	s.Run(250 * ms)
	dead := s.Node(1).ProcessID()
	s.Node(1).Crash(0)
	s.Node(2).ProcessDied(1, dead)
	s.Net.Hold = nil
	if s.Net.Release(from(1, raftpb.MsgHeartbeat)) == 0 {
		t.Fatal("no heartbeat of node 1 is held")
	}
	s.Run(5 * ms)
	if s.Node(2).Bound() {
		t.Error("Bound() of node 2 = true, want false: it was promised to the dead")
	}
	s.Net.DropHeld(nil)
	s.Node(3).ProcessDied(1, dead)
	s.Run(20 * ms)
	s.disjoint()
	if r := s.Node(3).Role(); r != raft.StateLeader {
		t.Errorf("Role() of node 3 = %v after 20 ms, want StateLeader", r)
	}
}

// A heartbeat of nobody knows whom has contributed to the promise: it ends by itself.
func TestV8APromiseToTwoProcesses(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = to(2, raftpb.MsgHeartbeat)
	s.Run(250 * ms)
	for _, m := range s.Net.Held() {
		s.hand(m)
	}
	s.Net.Hold = nil
	s.Run(200 * ms)
	dead := s.Node(1).ProcessID()
	s.Node(1).Crash(0)
	if s.Node(2).ProcessDied(1, dead); !s.Node(2).Bound() {
		t.Error("Bound() of node 2 = false, want true")
	}
	if s.Node(3).ProcessDied(1, dead); s.Node(3).Bound() {
		t.Error("Bound() of node 3 = true, want false: all it has heard came from the dead")
	}
	s.Run(20 * ms)
	s.disjoint()
}

// Node 2 has voted for the next leader, and not heard its heartbeats yet: what it knows of
// promises is to the one before, which dies then. Nobody else's promise is touched.
func TestV8AnObituaryNamesThePromisesTerm(t *testing.T) {
	s := mourning(t, 5, false, true)
	dead := s.Node(1).ProcessID()
	s.Net.Hold = to(2, raftpb.MsgHeartbeat)
	s.Node(1).Transfer(3)
	s.Run(250 * ms)
	s.wantReign(3, 2)
	s.Node(1).Crash(0)
	if n := s.Node(2); n.Term() != 2 || n.Bound() {
		t.Fatalf("node 2 is in term %d, bound: %v, want term 2 and free", n.Term(), n.Bound())
	}
	s.Node(2).ProcessDied(1, dead)
	s.Run(20 * ms)
	s.wantReign(3, 2)
	s.disjoint()
}

// Late, twice, to whom leads, or in a later term: an obituary changes nothing.
func TestV8LateObituaries(t *testing.T) {
	s := mourning(t, 3, true, true)
	dead := s.Node(1).ProcessID()
	s.Node(1).Crash(0)
	s.Node(2).ProcessDied(1, dead)
	s.Run(250 * ms)
	term := s.Node(2).Term()
	s.wantReign(2, term)
	for range 2 {
		s.Node(2).ProcessDied(1, dead)
		s.Node(3).ProcessDied(1, dead)
		s.Run(100 * ms)
	}
	s.Node(1).Restart()
	s.Run(3 * time.Second)
	s.Node(3).ProcessDied(1, dead)
	s.Run(100 * ms)
	s.wantReign(2, term)
	s.disjoint()
}

// What the dead had sent is stepped after their obituary, and raft takes them for the leader once
// more. The next turn is taken all the same.
func TestV8WhatTheDeadHaveSentEndsNoTurn(t *testing.T) {
	s := mourning(t, 5, true, true)
	dead := s.Node(1).ProcessID()
	s.Net.Hold = from(1, raftpb.MsgHeartbeat)
	s.Run(100 * ms)
	s.Node(1).Crash(0)
	s.Node(2).Crash(0)
	for id := uint64(3); id <= 5; id++ {
		s.Node(id).ProcessDied(1, dead)
	}
	s.Net.Hold = nil
	if s.Net.Release(from(1, raftpb.MsgHeartbeat)) == 0 {
		t.Fatal("no heartbeat of node 1 is held")
	}
	s.Run(130 * ms)
	s.disjoint()
	if r := s.Node(3).Role(); r != raft.StateLeader {
		t.Errorf("Role() of node 3 = %v after 130 ms, want StateLeader", r)
	}
}

// The others have just started again, let no request for votes in, and lack an entry: who stands by
// an obituary, without pre-votes, stands anew. Raft would make its request no more before its own timeout.
func TestV8VotersThatHoldMissTheRequest(t *testing.T) {
	for _, voters := range []uint64{3, 5} {
		opts := leasetest.Options{
			TickInterval: 50 * ms, ElectionTick: 20,
			Configure: func(_ uint64, cfg *leaderlease.Config) { cfg.Duration, cfg.MaxClockSkew = 250*ms, 100*ms },
			Node:      func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Async: true, Suspects: true} },
		}
		for id := range voters {
			opts.Voters = append(opts.Voters, id+1)
		}
		s := begin(t, opts)
		s.lead(1)
		s.Run(3 * time.Second)
		for id := uint64(3); id <= voters; id++ {
			s.Node(id).Crash(0)
		}
		s.Node(1).Write(7, 7, func(uint64) {})
		s.Run(20 * ms)
		s.Net.Hold = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp && m.GetTo() > 2 }
		for id := uint64(3); id <= voters; id++ {
			s.Node(id).Restart()
		}
		s.Run(10 * ms)
		dead, died := s.Node(1).ProcessID(), s.Now()
		s.Node(1).Crash(0)
		for id := uint64(2); id <= voters; id++ {
			s.Node(id).ProcessDied(1, dead)
		}
		if !s.RunUntil(3*election, func() bool { return s.Leader() != nil }) {
			t.Fatal("nobody leads within three election timeouts")
		}
		s.disjoint()
		if took := s.Now() - died; took > 750*ms {
			t.Errorf("%d voters: node %d leads after %v, want 750ms at most", voters, s.Leader().ID, took)
		}
	}
}

// Each disk takes 20 ms before a request for votes leaves, and the way to the others 10: the second does not stand
// beside the first, which would split the vote.
func TestV8TheNextTurnWaitsForTheFirstOnesDisk(t *testing.T) {
	s := begin(t, leasetest.Options{
		TickInterval: 50 * ms, ElectionTick: 20,
		Configure: func(_ uint64, cfg *leaderlease.Config) { cfg.Duration, cfg.MaxClockSkew = 250*ms, 100*ms },
		Node: func(uint64) leasetest.NodeOptions {
			return leasetest.NodeOptions{Async: true, Suspects: true, DiskDelay: func() time.Duration { return 20 * ms }}
		},
	})
	s.lead(1)
	s.Net.Plan = func(*raftpb.Message) []time.Duration { return []time.Duration{10 * ms} }
	s.Run(3 * time.Second)
	dead := s.Node(1).ProcessID()
	s.Node(1).Crash(0)
	s.Node(2).ProcessDied(1, dead)
	s.Node(3).ProcessDied(1, dead)
	s.Run(100 * ms)
	s.disjoint()
	if r := s.Node(2).Role(); r != raft.StateLeader {
		t.Errorf("Role() of node 2 = %v after 100 ms, want StateLeader", r)
	}
}
