package raftsim

import (
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A candidate wins by the votes of others while its own term and vote are not durable,
// replicates an entry to one of them and crashes. It comes back in the older term, gets the same
// votes again, and leads the same term again. It then commits another entry than the first
// follower has under the same index and term. This is docs/raft-durability.md as a program.
func TestCommittedLogsDiverge(t *testing.T) {
	asItIs, held := divergence(t, false), divergence(t, true)
	if asItIs[1] == asItIs[2] {
		t.Errorf("as raft is: members 1 and 2 have committed%s both, want different logs: this program no longer shows the defect", asItIs[1])
	}
	if held[1] != held[2] || held[2] != held[3] {
		t.Errorf("with votes held: committed%s, %s and %s, want one log", held[1], held[2], held[3])
	}
	t.Logf("as raft is: member 1 has committed%s, member 2%s, member 3%s", asItIs[1], asItIs[2], asItIs[3])
	t.Logf("votes held: member 1 has committed%s, member 2%s, member 3%s", held[1], held[2], held[3])
}

// divergence returns what each member knows to be committed in the end.
func divergence(t *testing.T, holdVotes bool) map[uint64]string {
	c := newTrio(t, 1, 2, 3)
	c.holdVotes = holdVotes

	// The disk of 3 hangs. Its appends reach member 1 only.
	c.members[3].stuck = true
	c.lose = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgApp && m.GetTo() == 2 }
	c.campaign(3)
	first := c.leads(3)
	c.propose(3, "x")

	// It crashes. Member 1 is out of reach for a moment when it is back.
	c.restart(3)
	c.lose = func(m *raftpb.Message) bool { return m.GetFrom() == 1 || m.GetTo() == 1 }
	c.campaign(3)
	second := c.leads(3)
	c.propose(3, "y")
	c.lose = none
	c.tick(3, 3)

	if twice := first != 0 && first == second; twice == holdVotes {
		t.Errorf("votes held %v: member 3 leads term %d, and term %d after its restart", holdVotes, first, second)
	}
	return map[uint64]string{1: c.committed(1), 2: c.committed(2), 3: c.committed(3)}
}

// It is not enough if a candidate sends its requests early and waits for its own durable vote:
// a MsgVote also describes the log. The votes may reach the next incarnation, after it has lost
// entries that the votes were given for. It then leads without a committed entry.
func TestOwnVoteFirstIsNotEnough(t *testing.T) {
	c := lateVotes(t, false)
	if c.leads(3) == 0 || c.committed(3) == c.committed(1) {
		t.Errorf("as raft is: member 3 leads term %d with%s committed, want it to lead without the last of%s", c.leads(3), c.committed(3), c.committed(1))
	}
	c.lose = none
	c.tick(3, 3)
	if one, three := c.committed(1), c.committed(3); len(strings.Fields(three)) != len(strings.Fields(one)) || one == three {
		t.Errorf("as raft is: member 1 has committed%s, member 3%s, want as many entries and another last one", one, three)
	}
	if c := lateVotes(t, true); c.leads(3) != 0 {
		t.Errorf("votes held: member 3 leads term %d, want no votes for it", c.leads(3))
	}
}

func lateVotes(t *testing.T, holdVotes bool) *trio {
	c := newTrio(t, 1, 2, 3)
	c.holdVotes, c.noPreVote = holdVotes, true
	for _, id := range c.ids {
		c.start(id) // without PreVote, for shortness
	}
	c.elect(1)
	c.lose = func(m *raftpb.Message) bool { return m.GetFrom() == 3 && m.GetType() == raftpb.MsgAppResp }
	c.members[3].stuck = true
	c.propose(1, "z") // committed by 1 and 2, under way to the disk of 3

	// 3 asks for votes, with z in its log. They are late.
	c.keep = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgVoteResp && m.GetTo() == 3 }
	c.campaign(3)

	// Without z, it asks again. No majority would give it a vote now.
	c.restart(3)
	c.keep = none
	c.lose = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgVote || m.GetType() == raftpb.MsgApp }
	c.campaign(3)
	if c.leads(3) != 0 {
		t.Fatal("member 3 leads without any vote")
	}
	c.deliverLate()
	return c
}

// A leader of two members removes itself, with a longer log than the remaining voter, which does
// not know yet that it is alone. No member crashes, two messages are lost, and no member can be
// elected any more.
func TestALeaderThatLeavesCanTakeTheVoteAlong(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		c := newTrio(t, 1, 2)
		c.elect(1)
		_ = c.members[1].raw.ProposeConfChange(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(1))})
		rd := c.members[1].raw.Ready()
		if !quiet {
			_ = c.members[1].raw.Propose([]byte("x"))
		}
		c.ready(1, rd) // 2 has the change, and x is the leader's alone
		c.lose = func(m *raftpb.Message) bool { return m.GetFrom() == 1 && m.GetType() == raftpb.MsgApp }
		c.settle()
		c.lose = none
		for range 20 {
			c.tick(1, 20)
			c.tick(2, 20)
		}
		if led := c.leads(2) != 0; led != quiet {
			t.Errorf("leader silent %v: member 2 leads %v, want %v; it is %v", quiet, led, quiet, c.members[2].raw.BasicStatus().RaftState)
		}
	}
}

// A sole voter with a volatile commit index answers reads below the entries that it acknowledged
// before it crashed: raft does not wait for a commit of the new term if no other voter exists.
func TestASoleVoterAnswersBelowWhatItAcknowledged(t *testing.T) {
	c := newTrio(t, 1)
	c.elect(1)
	c.propose(1, "x")
	acknowledged := c.members[1].raw.BasicStatus().GetCommit()
	// The last write that carried a commit index was that of x itself.
	hard, _, err := c.members[1].log.InitialState()
	must(err)
	must(c.members[1].log.SetHardState(&raftpb.HardState{Term: hard.Term, Vote: hard.Vote, Commit: new(acknowledged - 1)}))
	c.restart(1)
	_ = c.members[1].raw.Campaign()
	for c.leads(1) == 0 {
		c.ready(1, c.members[1].raw.Ready())
	}
	c.members[1].stuck = true // the first entry of its term is under way
	c.members[1].raw.ReadIndex([]byte("r1"))
	c.settle()
	if reads := c.members[1].reads; len(reads) != 1 || reads[0].Index >= acknowledged {
		t.Errorf("reads answered: %v, want one below %d: this program no longer shows the defect", reads, acknowledged)
	}
	if c.members[1].raw.BasicStatus().RaftState != raft.StateLeader {
		t.Error("member 1 does not lead")
	}
}
