package leaderlease

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/clock"
)

// Answers to candidates say what is committed, wherever they leave from, and no other
// message does.
func TestVoteAnswersSayWhatIsCommitted(t *testing.T) {
	answer := func(typ raftpb.MessageType, to uint64, reject bool) *raftpb.Message {
		return &raftpb.Message{Type: typ.Enum(), From: new(uint64(1)), To: new(to), Term: new(uint64(4)), Reject: new(reject)}
	}
	tests := []struct {
		name string
		m    *raftpb.Message
		want bool
	}{
		{"a vote", answer(raftpb.MsgVoteResp, 2, false), true},
		{"a vote that is rejected", answer(raftpb.MsgVoteResp, 2, true), true},
		{"a pre-vote", answer(raftpb.MsgPreVoteResp, 2, false), true},
		{"a pre-vote that is rejected", answer(raftpb.MsgPreVoteResp, 2, true), true},
		{"the vote for itself", answer(raftpb.MsgVoteResp, 1, false), false},
		{"another answer", answer(raftpb.MsgAppResp, 2, true), false},
	}
	for _, tt := range tests {
		for _, later := range []bool{false, true} { // as one of the Responses of a MsgStorageAppend
			p := newPuppet(t, func(c *Config) { c.Raft.AsyncStorageWrites = later })
			p.Ready(raft.Ready{CommittedEntries: []*raftpb.Entry{{Index: new(uint64(2)), Term: new(uint64(3))}}})
			m := *answer(tt.m.GetType(), tt.m.GetTo(), tt.m.GetReject())
			out := []*raftpb.Message{&m}
			if later {
				out = []*raftpb.Message{{Type: raftpb.MsgStorageAppend.Enum(), To: new(raft.LocalAppendThread), Responses: out}}
			}
			p.Ready(raft.Ready{Messages: out})
			if got := m.GetCommit() == 2 && m.GetRejectHint() == 3; got != tt.want {
				t.Errorf("%s (in a MsgStorageAppend: %v) says commit %d of term %d, want 2 of 3: %v", tt.name, later, m.GetCommit(), m.GetRejectHint(), tt.want)
			}
		}
	}
}

// The hint names what is known to be committed: at the start, by entries, by a snapshot; it
// never goes back.
func TestTheHintFollowsWhatIsCommitted(t *testing.T) {
	p := newPuppet(t)
	entry := func(index, term uint64) raft.Ready {
		return raft.Ready{CommittedEntries: []*raftpb.Entry{{Index: new(index), Term: new(term)}}}
	}
	for _, step := range []struct {
		rd   raft.Ready
		want commitHint
	}{
		{raft.Ready{}, commitHint{1, 1}}, // the snapshot that the log begins with
		{entry(4, 2), commitHint{4, 2}},
		{raft.Ready{HardState: &raftpb.HardState{Term: new(uint64(3)), Commit: new(uint64(6))}}, commitHint{4, 2}},
		{entry(6, 3), commitHint{6, 3}},
		{raft.Ready{Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(uint64(9)), Term: new(uint64(5)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}},
		}}}, commitHint{9, 5}},
		{entry(7, 3), commitHint{9, 5}},
	} {
		p.Ready(step.rd)
		if got := p.mu.committed; got != step.want {
			t.Errorf("hint = %+v, want %+v", got, step.want)
		}
	}
}

// hinted returns the answer of member 2 to member 1 that says what is committed.
func hinted(index, term uint64) *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgPreVoteResp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(9)), Reject: new(true),
		Commit: new(index), RejectHint: new(term),
	}
}

// A hint counts only where the log has the same entry, only if it tells of a configuration
// change, and where there is no leader to tell. It makes no member the leader.
func TestLearnCommit(t *testing.T) {
	heartbeat := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(9)), Commit: new(uint64(2))}
	tests := []struct {
		name  string
		log   string
		first *raftpb.Message // is stepped before
		m     *raftpb.Message
		want  uint64
	}{
		{"the change", "n1 n1 c1 n1", nil, hinted(3, 1), 3},
		{"an entry behind the change", "n1 n1 c1 n1", nil, hinted(4, 1), 4},
		{"what is known", "n1 n1 c1 n1", nil, hinted(2, 1), 2},
		{"another entry at its index", "n1 n1 c1 n1", nil, hinted(3, 2), 2},
		{"an entry that is not there", "n1 n1 c1 n1", nil, hinted(5, 1), 2},
		{"no change", "n1 n1 n1 n1", nil, hinted(4, 1), 2},
		{"no hint", "n1 n1 c1 n1", nil, hinted(0, 0), 2},
		{"under a leader", "n1 n1 c1 n1", heartbeat, hinted(3, 1), 2},
		{"another message", "n1 n1 c1 n1", nil, &raftpb.Message{
			Type: raftpb.MsgAppResp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(9)), Commit: new(uint64(3)), RejectHint: new(uint64(1)),
		}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rc, cfg := pairConfig(t, logOf(t, tt.log, 1, 2))
			node, l, err := NewRawNode(rc, cfg)
			if err != nil {
				t.Fatal(err)
			}
			lead := raft.None
			if tt.first != nil {
				lead = tt.first.GetFrom()
				_ = node.Step(tt.first)
			}
			l.LearnCommit(node, tt.m)
			if s := node.BasicStatus(); s.GetCommit() != tt.want || s.Lead != lead {
				t.Errorf("commit index %d and leader %d, want %d and %d", s.GetCommit(), s.Lead, tt.want, lead)
			}
		})
	}
}

func TestAMemberWithoutTheLibraryLearnsNothing(t *testing.T) {
	rc, cfg := pairConfig(t, logOf(t, "n1 n1 c1 n1", 1, 2))
	node, _, err := NewRawNode(rc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	(*Lease)(nil).LearnCommit(node, hinted(3, 1))
	if got := node.BasicStatus().GetCommit(); got != 2 {
		t.Errorf("commit index = %d, want 2", got)
	}
}

// Step of the Node that RestartNode returns does what LearnCommit does.
func TestAWrappedNodeLearnsWhatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc, cfg := pairConfig(t, logOf(t, "n1 n1 c1 n1", 1, 2))
		cfg.Clock = clock.Runtime()
		node, _, err := RestartNode(rc, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Step(t.Context(), hinted(3, 1)); err != nil {
			t.Fatal(err)
		}
		if s := node.Status(); s.GetCommit() != 3 || s.Lead != raft.None {
			t.Errorf("commit index %d and leader %d, want 3 and none", s.GetCommit(), s.Lead)
		}
		node.Stop()
	})
}

// A handler of Config.Logger that blocks does not stop LearnCommit.
func TestABlockedLogHandlerDoesNotStopLearnCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc, cfg := pairConfig(t, logOf(t, "n1 n1 c1 n1", 1, 2))
		s := blockedSink()
		cfg.Logger = slog.New(s)
		node, l, err := NewRawNode(rc, cfg)
		if err != nil {
			t.Fatal(err)
		}
		back := make(chan struct{})
		go func() { l.LearnCommit(node, hinted(3, 1)); close(back) }()
		synctest.Wait()
		select {
		case <-back:
		default:
			t.Error("LearnCommit waits for the handler")
		}
		close(s.opened)
		<-back
		l.Close()
	})
}
