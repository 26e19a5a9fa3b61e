package leaderlease

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// A follower that asks a leader which has only just won is answered once that
// one knows the answer. Asking again took half an election timeout.
func TestForwardedReadWaitsForTheReignsFirstCommit(t *testing.T) {
	var sent []*raftpb.Message
	p := newPuppet(t, func(c *Config) {
		c.Send = func(msgs []*raftpb.Message) { sent = append(sent, msgs...) }
	})
	p.win(2)
	ask := p.message(raftpb.MsgReadIndex, 2, 1)
	ask.Entries = []*raftpb.Entry{{Data: []byte("the follower's request")}}
	if p.Incoming(ask) {
		t.Fatal("Incoming() passes a read on before the reign's first commit")
	}
	rctx := p.asked()
	if rctx == nil {
		t.Fatal("ReadRequests() is empty, want a round for the follower's read")
	}
	p.answer(rctx, p.last-1) // raft's early answer: of before the reign
	if len(sent) != 0 {
		t.Fatalf("sent %v before the reign's first commit", sent)
	}
	p.commitTo(p.last)
	p.Applied(p.last)
	if rctx = p.asked(); rctx == nil {
		t.Fatal("ReadRequests() is empty after the first commit, want a new round")
	}
	p.answer(rctx, p.last)
	if len(sent) != 1 {
		t.Fatalf("sent %v, want one answer", sent)
	}
	m := sent[0]
	if m.GetType() != raftpb.MsgReadIndexResp || m.GetTo() != 2 || m.GetTerm() != 2 || m.GetIndex() != p.last ||
		string(m.GetEntries()[0].GetData()) != "the follower's request" || !attested(m) {
		t.Errorf("sent %v, want an attested answer with index %d in term 2", m, p.last)
	}
	if s := p.Stats(); s.Answered != 1 || s.Reads != [numPaths]uint64{} {
		t.Errorf("Stats() = %d answered, %v reads, want 1 and none of its own", s.Answered, s.Reads)
	}
}

// Whoever asks a leader that loses its reign before is not answered by it.
func TestForwardedReadEndsWithTheReign(t *testing.T) {
	var sent []*raftpb.Message
	p := newPuppet(t, func(c *Config) {
		c.Send = func(msgs []*raftpb.Message) { sent = append(sent, msgs...) }
	})
	p.win(2)
	p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1))
	p.follow(3, 3)
	p.lead(4)
	p.renew()
	if len(sent) != 0 {
		t.Errorf("sent %v in a later reign, want nothing", sent)
	}
}
