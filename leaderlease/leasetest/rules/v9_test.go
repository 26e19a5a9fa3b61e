package rules

import (
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// forgetful is a cluster with AsyncStorageWrites in which node 3, whose disk
// takes disk for each write, has been handed the leadership.
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
	// What it replicates is lost, or its former process would be remembered.
	f.Net.Hold = from(3, raftpb.MsgApp)
	f.Node(1).Transfer(3)
	f.Run(250 * ms)
	return f
}

// restart kills node 3 before anything of its reign is on its disk, and lets it
// campaign as soon as nobody is bound.
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

// A member leads by the votes of the others while its own disk lags, crashes,
// and has forgotten the term. It must not lead that term again: what its first
// process sent in it would be taken for words of the second.
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

// The request leaves as soon as the disk has answered, not later: a transfer to
// a member whose disk works takes a write, not an election timeout.
func TestV9TheVoteLeavesWhenItsTermIsDurable(t *testing.T) {
	f := beginForgetful(t, 1)
	if r := f.Node(3).Role(); r != raft.StateCandidate {
		t.Fatalf("Role() of node 3, whose disk has not answered, = %v, want StateCandidate", r)
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

// A vote whose term is in no write of its Ready asks nobody: raft makes no such
// Ready, and the rule does not rest on that.
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
