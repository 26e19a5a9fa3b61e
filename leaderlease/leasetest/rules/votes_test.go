package rules

import (
	"io"
	"log"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// stats returns the counters of the Lease of id.
func (s *story) stats(id uint64) leaderlease.Stats { return s.Node(id).Lease().Stats() }

// oneFreeVoter returns a cluster in which node 2 is cut off and no longer bound, while node 3 is
// bound and has just forgotten its leader.
func oneFreeVoter(t *testing.T) *story {
	t.Helper()
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Cut(1, 2)
	s.Net.Cut(2, 1)
	s.RunUntil(election*2, func() bool { return !s.Node(2).Bound() })
	s.Node(3).ForgetLeader()
	if s.Node(2).Bound() || !s.Node(3).Bound() {
		t.Fatalf("Bound() of nodes 2, 3 = %v, %v, want false, true", s.Node(2).Bound(), s.Node(3).Bound())
	}
	return s
}

// A bound voter does not even answer a pre-vote: node 2 would raise its term on
// the strength of it and depose a leader that a quorum has promised to.
func TestV3PreVoteIsKeptAway(t *testing.T) {
	s := oneFreeVoter(t)
	s.Node(2).Campaign()
	s.Run(5 * ms)
	if s.stats(3).Withheld.PreVoteIn == 0 {
		t.Error("node 3 withheld no pre-vote, want one")
	}
	if got := s.Node(2).Term(); got != 1 {
		t.Errorf("Term() of node 2 = %d, want 1", got)
	}
	s.Net.Heal()
	s.Run(300 * ms)
	s.wantLeader(1, 1)
}

// A request for a vote was sent while no voter was bound. It is late, and node 3 is bound now.
func TestV3VoteIsKeptAway(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.isolate(1)
	s.Net.Hold = from(2, raftpb.MsgVote)
	s.campaign(duration+50*ms, 2, 2, 3)
	if s.Node(2).Role() != raft.StateCandidate || len(s.Net.Held()) == 0 {
		t.Fatalf("node 2 is %v with %d votes on their way, want a candidate with some", s.Node(2).Role(), len(s.Net.Held()))
	}
	// The leader reaches node 3 again before the votes do.
	s.Net.Join(1, 3)
	s.Run(150 * ms)
	s.wantLeader(1, 1)
	s.Node(3).ForgetLeader()
	s.Net.Release(to(3, raftpb.MsgVote))
	s.Run(5 * ms)
	if s.stats(3).Withheld.VoteIn == 0 {
		t.Error("node 3 withheld no vote, want some")
	}
	if got := s.Node(3).Term(); got != 1 {
		t.Errorf("Term() of node 3 = %d, want 1", got)
	}
	s.wantLeader(1, 1)
	s.disjoint()
}

// A MsgTimeoutNow without a release, as a node without the library sends it,
// starts no campaign at a bound voter.
func TestV3TimeoutNowIsKeptAway(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	m := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(1))}
	if s.Node(2).Lease().Incoming(m, leaderlease.ProcessID{}) {
		t.Error("Incoming(MsgTimeoutNow) at a bound voter = true, want false")
	}
	if got := s.stats(2).Withheld.TimeoutNowIn; got != 1 {
		t.Errorf("Withheld[timeout_now_in] = %d, want 1", got)
	}
}

// Votes go through once the promise has ended, and the withheld ones left
// nothing behind: fail-over works.
func TestV3FreeVoterVotes(t *testing.T) {
	s := oneFreeVoter(t)
	s.isolate(1)
	s.electEarly(2, 3)
}

// Votes for a bound node do not count either, whenever it asked for them.
func TestV3VotesForABoundNodeAreKeptAway(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	for _, tc := range []struct {
		typ    raftpb.MessageType
		reject bool
		want   bool
	}{
		{raftpb.MsgVoteResp, false, false},
		{raftpb.MsgPreVoteResp, false, false},
		{raftpb.MsgVoteResp, true, true},
		{raftpb.MsgPreVoteResp, true, true},
	} {
		m := &raftpb.Message{Type: tc.typ.Enum(), From: new(uint64(3)), To: new(uint64(2)), Term: new(uint64(2)), Reject: new(tc.reject)}
		if got := s.Node(2).Lease().Incoming(m, leaderlease.ProcessID{}); got != tc.want {
			t.Errorf("Incoming(%v, reject %v) at a bound node = %v, want %v", tc.typ, tc.reject, got, tc.want)
		}
	}
}

// The filter and raft's Step are not one critical section. Node 3 lets a vote
// in while it is free; before raft steps it, a heartbeat overtakes: the promise
// is made, the grant leaves. The vote must not leave, too.
func TestV4VoteCastBeforeThePromiseDoesNotLeave(t *testing.T) {
	for name, async := range map[string]bool{"sync": false, "async": true} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, leasetest.Options{Node: func(uint64) leasetest.NodeOptions {
				return leasetest.NodeOptions{Async: async}
			}})
			s.lead(1)
			s.isolate(1)
			s.Net.Hold = from(2, raftpb.MsgVote)
			s.campaign(duration+50*ms, 2, 2, 3)
			vote := s.heldOf(to(3, raftpb.MsgVote))
			n := s.Node(3)
			if !n.Lease().Incoming(vote, leaderlease.ProcessID{}) {
				t.Fatal("Incoming(MsgVote) at a free voter = false, want true")
			}
			s.Net.Join(1, 3)
			if !s.RunUntil(election, s.Node(1).Valid) {
				t.Fatal("node 3's grant did not renew the lease of node 1")
			}
			n.ForgetLeader()
			s.isolate(1)
			if err := n.Raw().Step(vote); err != nil {
				t.Fatalf("Step(MsgVote) = %v", err)
			}
			n.Kick()
			s.Run(50 * ms)
			s.disjoint()
			if s.stats(3).Withheld.VoteRespOut == 0 {
				t.Error("node 3 withheld no granted vote, want one")
			}
			s.Net.Hold = nil
			s.electEarly(2, 2, 3)
		})
	}
}

// Node 2 is bound and campaigns; node 3, cut off from the leader, is free to
// vote for it. Only the candidate's own promise stands in the way.
func TestV4BoundVoterDoesNotCampaign(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Split([]uint64{1}, []uint64{3})
	s.RunUntil(election*2, func() bool { return !s.Node(3).Bound() })
	s.isolate(1)
	s.wantLeader(1, 1)
	s.electEarly(2, 2, 3)
	if s.stats(2).Withheld.PreVoteOut == 0 {
		t.Error("node 2 withheld no pre-vote of its own, want some")
	}
}

// As above, but node 2 began before it was bound: it is a candidate, and its requests for votes are
// about to leave when the promise is made.
func TestV4BoundCandidateAsksForNoVote(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Split([]uint64{1}, []uint64{3})
	s.Net.Hold = func(m *raftpb.Message) bool {
		return m.GetType() == raftpb.MsgHeartbeat && m.GetTo() == 2 || m.GetType() == raftpb.MsgPreVoteResp
	}
	s.RunUntil(election*2, func() bool { return !s.Node(2).Bound() && !s.Node(3).Bound() })
	n := s.Node(2)
	n.ForgetLeader()
	s.Node(3).ForgetLeader()
	n.Campaign()
	s.Run(5 * ms)
	beat := s.heldOf(to(2, raftpb.MsgHeartbeat))
	resp := s.heldOf(from(3, raftpb.MsgPreVoteResp))
	// Both are let in, the answer first; then raft steps it.
	if !n.Lease().Incoming(resp, leaderlease.ProcessID{}) || !n.Lease().Incoming(beat, leaderlease.ProcessID{}) {
		t.Fatal("Incoming() of a free node = false, want true")
	}
	s.isolate(1)
	if err := n.Raw().Step(resp); err != nil {
		t.Fatalf("Step(MsgPreVoteResp) = %v", err)
	}
	n.Kick()
	if s.stats(2).Withheld.VoteOut == 0 {
		t.Errorf("node 2, %v, withheld no MsgVote, want some", n.Role())
	}
}

// Leader 2 is being removed from {1, 2}. Its state machine is behind, so it has
// not been handed the change; node 1 has applied it and is a quorum by itself.
// It needs no other vote, and its own must not count while it is bound.
func TestV5OwnVoteDoesNotCountWhileBound(t *testing.T) {
	s := begin(t, leasetest.Options{
		Voters: []uint64{1, 2},
		Node: func(id uint64) leasetest.NodeOptions {
			o := leasetest.NodeOptions{Async: true}
			if id == 2 {
				o.ApplyDelay = func() time.Duration { return 2 * time.Second }
			}
			return o
		},
	})
	n := s.Node(2)
	n.Campaign()
	s.RunUntil(5*time.Second, n.Valid)
	s.wantLeader(2, 1)
	// Raft hands no more entries out while so many bytes are being applied.
	if err := n.Raw().Propose(make([]byte, 1<<16)); err != nil {
		t.Fatalf("Propose() = %v", err)
	}
	n.Kick()
	s.Run(5 * ms)
	n.Change(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(2))})
	if !s.RunUntil(100*ms, func() bool { return len(s.Node(1).Conf().GetVoters()) == 1 }) {
		t.Fatalf("Conf() of node 1 = %v, want voters [1]", s.Node(1).Conf())
	}
	s.wantLeader(2, 1)
	s.isolate(2)
	s.electEarly(1)
	if s.stats(1).Withheld.VoteRespOut == 0 {
		t.Error("node 1 withheld no vote of its own, want some")
	}
}

// A node that ticked would elect itself without sending anything, so raft does
// not tick while the node is bound; a burst of ticks changes nothing.
func TestV5TickIsWithheld(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: []uint64{1}})
	n := s.lead(1)
	n.Crash(0)
	n.Restart()
	for range 128 {
		if n.Lease().Tick() {
			t.Fatal("Tick() of a sole voter in its restart hold = true, want false")
		}
	}
	s.Run(duration)
	if n.Role() == raft.StateLeader {
		t.Error("node 1 leads in its restart hold")
	}
	if !s.RunUntil(3*time.Second, n.Valid) {
		t.Error("node 1 never led again")
	}
}

// Without AsyncStorageWrites raft counts a node's own vote in Advance, where no
// filter sees it. An embedding that campaigns without asking is held back in
// Ready until the promise is over.
func TestV5ReadyIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := raft.NewMemoryStorage()
		if err := storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1}},
		}}); err != nil {
			t.Fatal(err)
		}
		if err := storage.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}); err != nil {
			t.Fatal(err)
		}
		rc := &raft.Config{
			ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, MaxSizePerMsg: 1 << 16, MaxInflightMsgs: 8,
			PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
			Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
		}
		raw, err := raft.NewRawNode(rc)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		lease, err := leaderlease.New(leaderlease.Config{Raft: rc, TickInterval: 100 * ms, Clock: clock.Runtime()})
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Campaign(); err != nil {
			t.Fatal(err)
		}
		for raw.HasReady() && raw.Status().RaftState != raft.StateLeader {
			rd := raw.Ready()
			lease.Ready(&rd)
			raw.Advance(rd)
		}
		if raw.Status().RaftState != raft.StateLeader {
			t.Fatalf("RaftState = %v, want StateLeader", raw.Status().RaftState)
		}
		if took := time.Since(begin); took != duration {
			t.Errorf("node 1 elected itself after %v, want %v, the restart hold", took, duration)
		}
	})
}

// forgetful is a cluster with AsyncStorageWrites. Leadership was transferred to node 3, and each
// write of its disk takes disk.
type forgetful struct {
	*story
	disk time.Duration
}

func beginForgetful(t *testing.T, seed uint64) *forgetful {
	t.Helper()
	f := &forgetful{}
	f.story = begin(t, leasetest.Options{Node: func(id uint64) leasetest.NodeOptions {
		o := leasetest.NodeOptions{Async: true}
		if id == 3 {
			o.DiskDelay = func() time.Duration { return f.disk }
		}
		return o
	}})
	cryptotest.SetGlobalRandom(t, seed)
	f.lead(1)
	f.Run(2 * time.Second)
	f.disk = 20 * time.Second
	// Its appends are held, or other nodes would remember its term.
	f.Net.Hold = from(3, raftpb.MsgApp)
	f.Node(1).Transfer(3)
	f.Run(250 * ms)
	return f
}

// restart kills node 3 before its term is on its disk, and lets it campaign as soon as no node is
// bound.
func (f *forgetful) restart() {
	f.t.Helper()
	three := f.Node(3)
	three.Crash(0)
	f.disk, f.Net.Hold = 0, nil
	three.Restart()
	f.RunUntil(2*time.Second, func() bool {
		return !three.Bound() && !f.Node(1).Bound() && !f.Node(2).Bound()
	})
	if three.Role() == raft.StateFollower {
		three.Campaign()
	}
	f.RunUntil(100*ms, func() bool { return three.Role() == raft.StateLeader })
}

// A member leads by the votes of the others while its own disk is slow, crashes, and has forgotten
// the term. It must not lead that term again: messages of the first process would be taken for
// messages of the second.
func TestV9NoTermIsLedTwice(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		f := beginForgetful(t, seed)
		led := make(map[uint64]bool)
		note := func(n *leasetest.Node, term uint64) {
			if n.ID == 3 && led[term] {
				t.Errorf("seed %d, %v: node 3 wins term %d, which its former process led", seed, f.Now(), term)
			}
			led[term] = true
		}
		if three := f.Node(3); three.Role() == raft.StateLeader {
			note(three, three.Term())
		}
		f.OnLeader = note
		f.restart()
	}
}

// The request leaves as soon as the disk has answered: a transfer to a member with a working disk
// takes one write, not an election timeout.
func TestV9TheVoteLeavesWhenItsTermIsDurable(t *testing.T) {
	f := beginForgetful(t, 1)
	if r := f.Node(3).Role(); r != raft.StateCandidate {
		t.Fatalf("Role() of node 3 = %v before its disk has answered, want StateCandidate", r)
	}
	f.restart()
	f.disk = 30 * ms
	f.lead(1)
	f.Run(time.Second)
	start := f.Now()
	f.Node(1).Transfer(3)
	f.RunUntil(election, func() bool { return f.Node(3).Role() == raft.StateLeader })
	if took := f.Now() - start; took < 30*ms || took > 50*ms {
		t.Errorf("transfer took %v with a disk that takes 30ms, want one write more than the messages", took)
	}
	f.disjoint()
}

// The request waits among the responses of the write that holds its term; the
// rest of the Ready leaves at once.
func TestV9TheVoteRidesWithItsTerm(t *testing.T) {
	var wrote *raftpb.Message
	s := begin(t, leasetest.Options{Node: func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Async: true} }})
	s.OnReady = func(n *leasetest.Node, msgs []*raftpb.Message) {
		for _, m := range msgs {
			if m.GetType() == raftpb.MsgVote {
				t.Errorf("MsgVote of term %d leaves node %d before its term is durable", m.GetTerm(), n.ID)
			}
			for _, r := range m.GetResponses() {
				if r.GetType() == raftpb.MsgVote {
					wrote = m
				}
			}
		}
	}
	s.lead(1)
	if wrote.GetType() != raftpb.MsgStorageAppend || wrote.GetTerm() != s.Node(1).Term() {
		t.Errorf("MsgVote of term %d rides on %v of term %d, want the write of its term", s.Node(1).Term(), wrote.GetType(), wrote.GetTerm())
	}
}

// A MsgVote with a term that no write of its Ready contains stays. Raft makes no such Ready, but
// the rule does not depend on that.
func TestV9AVoteWithoutItsTermStays(t *testing.T) {
	s := begin(t, leasetest.Options{Node: func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Async: true} }})
	vote := func() *raftpb.Message {
		return &raftpb.Message{Type: raftpb.MsgVote.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(uint64(7))}
	}
	write := &raftpb.Message{Type: raftpb.MsgStorageAppend.Enum(), From: new(uint64(1)), To: new(raft.LocalAppendThread), Term: new(uint64(6))}
	l := s.Node(1).Lease()
	for _, msgs := range [][]*raftpb.Message{{vote()}, {vote(), write}} {
		rd := raft.Ready{Messages: msgs}
		l.Ready(&rd)
		for _, m := range rd.Messages {
			if m != write || len(m.GetResponses()) > 0 {
				t.Errorf("Ready(%v) lets the vote of term 7 out, want it withheld", msgs)
			}
		}
	}
	if got := l.Stats().Withheld.VoteOut; got != 2 {
		t.Errorf("Stats().Withheld.VoteOut = %d, want 2", got)
	}
}
