package leaderlease

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

func TestLeaderAnswersForwardedReads(t *testing.T) {
	ask := func(p *puppet) *raftpb.Message {
		m := p.message(raftpb.MsgReadIndex, 2, 1)
		m.Entries = []*raftpb.Entry{{Data: []byte("request 17")}}
		return m
	}
	tests := []struct {
		name     string
		build    func(testing.TB, ...func(*Config)) *puppet
		send     bool
		answered bool
		raft     bool // whether raft sees the request
	}{
		{"under the lease", leading, true, true, false},
		{"without Send raft answers", leading, false, false, true},
		{"without a lease raft answers", expired, true, false, true},
		{"a follower passes it on", following, true, false, true},
		{"a leader without a commit of its term", func(tb testing.TB, amend ...func(*Config)) *puppet {
			p := newPuppet(tb, amend...)
			p.win(2)
			return p
		}, true, false, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var sent []*raftpb.Message
			p := tc.build(t, func(c *Config) {
				if tc.send {
					c.Send = func(msgs []*raftpb.Message) { sent = append(sent, msgs...) }
				}
			})
			if got := p.Incoming(ask(p)); got != tc.raft {
				t.Errorf("Incoming(read index) = %v, want %v", got, tc.raft)
			}
			if answered := len(sent) == 1 && p.Stats().Answered == 1; answered != tc.answered {
				t.Fatalf("answered: %v (%v), want %v", answered, sent, tc.answered)
			}
			if !tc.answered {
				return
			}
			m := sent[0]
			if m.GetType() != raftpb.MsgReadIndexResp || m.GetTo() != 2 || m.GetFrom() != 1 || m.GetTerm() != 2 ||
				m.GetIndex() != p.last || string(m.GetEntries()[0].GetData()) != "request 17" {
				t.Errorf("answer = %v, want index %d of term 2 for request 17, from 1 to 2", m, p.last)
			}
		})
	}
}

// A request that comes from this node itself has nobody to be answered to.
func TestLocalReadIndexPassesThrough(t *testing.T) {
	p := leading(t, func(c *Config) { c.Send = func([]*raftpb.Message) { t.Error("Send was called") } })
	if !p.Incoming(&raftpb.Message{Type: raftpb.MsgReadIndex.Enum()}) {
		t.Error("Incoming(own read index) = false, want raft to see it")
	}
}

// A leader that does not know its own reign must not answer as a leader.
func TestRaftsAnswerIsKeptBackWithoutACommit(t *testing.T) {
	p := newPuppet(t)
	p.win(2)
	let := func(index uint64) []*raftpb.Message {
		resp := p.message(raftpb.MsgReadIndexResp, 1, 2)
		resp.Index = new(index)
		return p.Ready(raft.Ready{Messages: []*raftpb.Message{resp}})
	}
	if msgs := let(0); len(msgs) != 0 {
		t.Errorf("Ready() let %v out, want raft's answer kept back before a commit of the term", msgs)
	}
	p.commitTo(p.last)
	// Raft may have given it before the commit that has come to light with it.
	if msgs := let(p.last - 1); len(msgs) != 0 {
		t.Errorf("Ready() let %v out, want an answer below the reign's first entry kept back", msgs)
	}
	if msgs := let(p.last); len(msgs) != 1 {
		t.Errorf("Ready() let %d messages out, want the answer", len(msgs))
	}
}
