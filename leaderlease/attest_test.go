package leaderlease

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// A leader without the library, on ReadOnlyLeaseBased say, answers forwarded
// reads with an index that may be stale. Found by review: version 3 was served
// on a follower after version 4 had been written.
func TestUnattestedAnswersAreRefused(t *testing.T) {
	p := newPuppet(t)
	p.follow(2, 2)
	ask := func() (answer *raftpb.Message, result *outcome) {
		result = p.startRead()
		answer = p.message(raftpb.MsgReadIndexResp, 2, 1)
		answer.Entries = []*raftpb.Entry{{Data: <-p.ReadRequests()}}
		return answer, result
	}

	answer, result := ask()
	if p.Incoming(answer) {
		t.Error("Incoming() let an answer in that nobody attests")
	}
	if nl, ok := errors.AsType[*NoLeaseError](result.err); !ok || nl.Err == nil || result.calls != 1 {
		t.Errorf("StartRead() = %v after %d calls, want one NoLeaseError with a cause", result.err, result.calls)
	}

	answer, result = ask()
	attachAnswer(answer)
	if p.Incoming(answer); result.calls != 1 || result.err != nil {
		t.Errorf("StartRead() = %v after %d calls and an attested answer, want it served", result.err, result.calls)
	}
	foreign := p.message(raftpb.MsgReadIndexResp, 2, 1)
	foreign.Entries = []*raftpb.Entry{{Data: []byte("the embedder's own")}}
	if !p.Incoming(foreign) {
		t.Error("Incoming() kept an answer out that is not for a Read")
	}
}

// An attested answer lets reads go where it arrives, without a turn of the raft loop. Raft
// sees those that it may learn a term from, or that reach one that does not follow.
func TestAnswersAreTakenWhereTheyArrive(t *testing.T) {
	for _, tc := range []struct {
		name   string
		term   uint64
		amend  func(p *puppet)
		served bool
	}{
		{"its leader's", 2, func(*puppet) {}, true},
		{"of an earlier term", 1, func(*puppet) {}, false},
		{"of a later term", 3, func(*puppet) {}, false},
		{"to a candidate", 2, func(p *puppet) {
			p.Ready(raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StatePreCandidate}})
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPuppet(t)
			p.follow(2, 2)
			result := p.startRead()
			rctx := p.asked()
			tc.amend(p)
			m := p.message(raftpb.MsgReadIndexResp, 2, 1)
			m.Term, m.Index, m.Entries = new(tc.term), new(uint64(1)), []*raftpb.Entry{{Data: rctx}}
			attachAnswer(m)
			if in := p.Incoming(m); in == tc.served {
				t.Errorf("Incoming() = %v, want %v", in, !tc.served)
			}
			if served := result.calls == 1 && result.err == nil; served != tc.served {
				t.Errorf("StartRead() = %+v, %v after %d calls, want it served: %v", result.read, result.err, result.calls, tc.served)
			}
			if tc.served && (result.read.Index != 1 || result.read.Path != PathForwarded || result.read.Term != 2) {
				t.Errorf("StartRead() = %+v, want it forwarded in term 2, at index 1", result.read)
			}
		})
	}
}

// Both ways in which a leader answers are attested.
func TestLeadersAttestTheirAnswers(t *testing.T) {
	var sent []*raftpb.Message
	p := leading(t, func(c *Config) {
		c.Send = func(msgs []*raftpb.Message) { sent = append(sent, msgs...) }
	})
	p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1))
	if len(sent) != 1 || !attested(sent[0]) {
		t.Errorf("answers from the lease = %v, want one that is attested", sent)
	}
	resp := p.message(raftpb.MsgReadIndexResp, 1, 2)
	resp.Index = new(p.last)
	for _, m := range p.Ready(raft.Ready{Messages: []*raftpb.Message{resp}}) {
		if !attested(m) {
			t.Errorf("raft's answer leaves unattested: %v", m)
		}
	}
}

// A durable state machine may be ahead of the commit index that the disk knows,
// but not of the log.
func TestAppliedMayOutrunTheCommitIndexOnDisk(t *testing.T) {
	p := newPuppet(t, func(c *Config) {
		s := bootstrapped(t, 1, 2, 3)
		entries := []*raftpb.Entry{
			{Index: new(uint64(2)), Term: new(uint64(1))},
			{Index: new(uint64(3)), Term: new(uint64(1))},
		}
		if err := s.Append(entries); err != nil {
			t.Fatal(err)
		}
		c.Raft.Storage = s
	})
	p.Applied(3)
	if s := p.Info(); s.Err != nil || s.Applied != 3 {
		t.Errorf("Info() after Applied(3) = applied %d, %v, want 3, nil", s.Applied, s.Err)
	}
	p.Applied(4)
	if s := p.Info(); s.Err == nil || s.Status != core.Disabled {
		t.Errorf("Info() after Applied(4) = %v, %v, want disabled by a misuse", s.Status, s.Err)
	}
}

func attested(m *raftpb.Message) bool {
	_, err := answerOf(m)
	return err == nil
}
