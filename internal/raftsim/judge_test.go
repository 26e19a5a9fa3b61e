package raftsim

import (
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Negative controls for violations that no seed causes: each check gets one case that it must
// refuse, and a similar one that it must accept.
func TestJudgeRefuses(t *testing.T) {
	resp := func(kind raftpb.MessageType, term, index uint64) *raftpb.Message {
		return &raftpb.Message{Type: kind.Enum(), From: new(uint64(1)), To: new(uint64(2)), Term: new(term), Index: new(index)}
	}
	tests := []struct {
		name, kind string
		do         func(s *sim, n *node)
	}{
		{"a vote that is durable", "", func(s *sim, n *node) {
			n.disk.hard = hardState{term: 5, vote: 2, commit: 1}
			s.judge.durable(n, resp(raftpb.MsgVoteResp, 5, 0))
		}},
		{"a vote that is not durable", "not durable", func(s *sim, n *node) {
			s.judge.durable(n, resp(raftpb.MsgVoteResp, 5, 0))
		}},
		{"a vote for another member in the same term", "not durable", func(s *sim, n *node) {
			n.disk.hard = hardState{term: 5, vote: 3, commit: 1}
			s.judge.votes[[2]uint64{1, 5}] = 3
			s.judge.durable(n, resp(raftpb.MsgVoteResp, 5, 0))
		}},
		{"an append that is durable", "", func(s *sim, n *node) { s.judge.durable(n, resp(raftpb.MsgAppResp, 1, 1)) }},
		{"an append that is not durable", "not durable", func(s *sim, n *node) { s.judge.durable(n, resp(raftpb.MsgAppResp, 1, 2)) }},
		{"a restart in the term of a vote", "", func(s *sim, n *node) { s.judge.answered[1] = 1; s.judge.started(n) }},
		{"a restart before the term of a vote", "not durable", func(s *sim, n *node) { s.judge.answered[1] = 2; s.judge.started(n) }},
		{"a restart without what is applied", "not durable", func(s *sim, n *node) { n.p.machine.applied = 2; s.judge.started(n) }},
		{"a term that goes on", "", func(s *sim, n *node) {
			s.judge.hardState(n, &raftpb.HardState{Term: new(uint64(2)), Commit: new(uint64(1))})
		}},
		{"a term that goes back", "not durable", func(s *sim, n *node) {
			n.p.hard.term = 3
			s.judge.hardState(n, &raftpb.HardState{Term: new(uint64(2)), Commit: new(uint64(1))})
		}},
		{"a commit index that goes back", "not durable", func(s *sim, n *node) {
			n.p.hard.commit = 2
			s.judge.hardState(n, &raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))})
		}},
		{"a commit index beyond the log", "diverged", func(s *sim, n *node) {
			s.judge.hardState(n, &raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(2))})
		}},
		{"another entry under the same index and term", "diverged", func(s *sim, n *node) {
			s.judge.entry(n, &raftpb.Entry{Index: new(uint64(2)), Term: new(uint64(1)), Data: []byte("x")})
			s.judge.entry(n, &raftpb.Entry{Index: new(uint64(2)), Term: new(uint64(1)), Data: []byte("y")})
		}},
		{"a machine in another state", "diverged", func(s *sim, n *node) { n.p.machine.chain++; s.judge.applied(n) }},
		{"another configuration at the same index", "diverged", func(s *sim, n *node) {
			s.judge.addConf(1, &raftpb.ConfState{Voters: []uint64{1, 9}})
		}},
		{"the only leader of a term", "", func(s *sim, n *node) { s.judge.elected(n); s.judge.elected(n) }},
		{"another leader of a term", "led twice", func(s *sim, n *node) { s.judge.elected(n); s.judge.elected(s.node(2)) }},
		{"another incarnation that leads a term", "led twice", func(s *sim, n *node) { s.judge.elected(n); n.run++; s.judge.elected(n) }},
		{"a leader without what was committed", "diverged", func(s *sim, n *node) {
			s.judge.committed = append(s.judge.committed, fact{logEntry: logEntry{term: 1}, known: 1})
			n.p.hard.term = 2
			s.judge.elected(n)
		}},
		{"a read of all that was committed", "", func(s *sim, n *node) { readAnswered(s, n, 1) }},
		{"a read of less", "stale read", func(s *sim, n *node) { readAnswered(s, n, 0) }},
		{"something acknowledged is missing", "lost", func(s *sim, _ *node) {
			s.judge.acked, s.judge.probed = 2, 1
			s.judgeEnd()
		}},
		{"nothing committed after healing", "no leader", func(s *sim, _ *node) { s.judgeEnd() }},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := cluster(t)
			tc.do(s, s.node(1))
			got := ""
			if s.violated() {
				got = s.res.Violation.Kind
			}
			if got != tc.kind {
				t.Errorf("judged %q, want %q: %v", got, tc.kind, s.res.Violation)
			}
		})
	}
}

func readAnswered(s *sim, n *node, index uint64) {
	n.p.reads[7] = s.judge.committedTo()
	s.readStates(n, []raft.ReadState{{Index: index, RequestCtx: encodeChain(7)}})
}

// cluster is a simulation that has only begun.
func cluster(t *testing.T) *sim {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	for seed := uint64(1); ; seed++ {
		s := newSim(Config{Seed: seed, Rules: AllRules()}.withDefaults())
		if s.w.voters < 3 {
			continue
		}
		s.build()
		return s
	}
}

func TestAgendaIsInOrder(t *testing.T) {
	var a agenda
	var got []int
	for i, at := range []int{5, 1, 3, 1, 4, 1, 5, 9, 2, 6} {
		a.add(time.Duration(at), func() { got = append(got, at*100+i) })
	}
	for len(a.heap) > 0 {
		a.next().run()
	}
	want := []int{101, 103, 105, 208, 302, 404, 500, 506, 609, 907}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("events run in the order %v, want %v", got, want)
		}
	}
}
