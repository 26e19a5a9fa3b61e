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

// ledByNode1 returns a group in which node 1 leads. With suspects, its members take turns to
// campaign.
func ledByNode1(t *testing.T, voters int, suspects, async bool) *story {
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

// The leader is replaced within a few messages after its death notice, before the promises end,
// even if only one member receives the notice.
func TestV8ADeathNoticeVoidsThePromise(t *testing.T) {
	for i := range 8 {
		suspects, async, all := i&1 != 0, i&2 != 0, i&4 != 0
		s := ledByNode1(t, 3, suspects, async)
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

// The member with the next turn campaigns if the first one is dead, too, or bound by its restart.
func TestV8TheNextTurn(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		s := ledByNode1(t, 5, true, true)
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

// The death notice of an earlier process is true, but late: the member has restarted, leads again,
// and its lease is valid. If the notice voided promises to the new process, another leader would be
// elected beside that lease, and reads under the lease would miss its writes.
func TestV8ALateDeathNoticeOfAnEarlierProcess(t *testing.T) {
	s := ledByNode1(t, 3, false, true)
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
	s.wantLeader(1, term)
	newest := old
	if s.Node(2).Role() == raft.StateLeader {
		newest = s.write(2, 7)
	}
	if got, status := s.Node(1).TryRead(7); status == core.Valid && got < newest {
		t.Errorf("node 1 serves version %d of a key, and its newest version is %d", got, newest)
	}
	s.disjoint()
}

// A restarted voter does not know to which leader it has promised: no death notice frees it before
// the longest promise has ended.
func TestV8TheRestartHoldStays(t *testing.T) {
	s := ledByNode1(t, 3, false, true)
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
		t.Error("no leader after two election timeouts")
	}
	s.disjoint()
}

// Heartbeats of a dead process arrive after its death notice, at a member that did not know its
// term. They bind no member.
func TestV8LateHeartbeatsOfADeadProcess(t *testing.T) {
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
		t.Error("Bound() of node 2 = true, want false: the promise was to a dead process")
	}
	s.Net.DropHeld(nil)
	s.Node(3).ProcessDied(1, dead)
	s.Run(20 * ms)
	s.disjoint()
	if r := s.Node(3).Role(); r != raft.StateLeader {
		t.Errorf("Role() of node 3 = %v after 20 ms, want StateLeader", r)
	}
}

// A heartbeat of an unknown process has extended the promise, so the promise ends only by itself.
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
		t.Error("Bound() of node 3 = true, want false: all heartbeats came from the dead process")
	}
	s.Run(20 * ms)
	s.disjoint()
}

// Node 2 has voted for the next leader, and has not received its heartbeats yet. It knows only its
// promise to the leader before, which dies then. The promises of other members stay.
func TestV8ADeathNoticeNamesThePromisesTerm(t *testing.T) {
	s := ledByNode1(t, 5, false, true)
	dead := s.Node(1).ProcessID()
	s.Net.Hold = to(2, raftpb.MsgHeartbeat)
	s.Node(1).Transfer(3)
	s.Run(250 * ms)
	s.wantLeader(3, 2)
	s.Node(1).Crash(0)
	if n := s.Node(2); n.Term() != 2 || n.Bound() {
		t.Fatalf("node 2 is in term %d, bound: %v, want term 2 and free", n.Term(), n.Bound())
	}
	s.Node(2).ProcessDied(1, dead)
	s.Run(20 * ms)
	s.wantLeader(3, 2)
	s.disjoint()
}

// A death notice changes nothing if it is late, repeated, sent to the leader, or of an earlier term.
func TestV8LateDeathNotices(t *testing.T) {
	s := ledByNode1(t, 3, true, true)
	dead := s.Node(1).ProcessID()
	s.Node(1).Crash(0)
	s.Node(2).ProcessDied(1, dead)
	s.Run(250 * ms)
	term := s.Node(2).Term()
	s.wantLeader(2, term)
	for range 2 {
		s.Node(2).ProcessDied(1, dead)
		s.Node(3).ProcessDied(1, dead)
		s.Run(100 * ms)
	}
	s.Node(1).Restart()
	s.Run(3 * time.Second)
	s.Node(3).ProcessDied(1, dead)
	s.Run(100 * ms)
	s.wantLeader(2, term)
	s.disjoint()
}

// Raft steps heartbeats of a dead process after its death notice, and follows it again. The member
// with the next turn campaigns all the same.
func TestV8LateHeartbeatsEndNoTurn(t *testing.T) {
	s := ledByNode1(t, 5, true, true)
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

// The other voters have just restarted, admit no requests for votes, and lack an entry. The candidate
// campaigns by a death notice, without pre-votes, and campaigns again before raft's own timeout.
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
			t.Fatal("no leader within three election timeouts")
		}
		s.disjoint()
		if took := s.Now() - died; took > 750*ms {
			t.Errorf("%d voters: node %d leads after %v, want 750ms at most", voters, s.Leader().ID, took)
		}
	}
}

// Each disk takes 20 ms before a request for votes leaves, and a message takes 10 ms. The second
// member must not campaign beside the first, which would split the vote.
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
