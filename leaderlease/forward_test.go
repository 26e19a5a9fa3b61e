package leaderlease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
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

// A request of this node itself needs no answer.
func TestLocalReadIndexPassesThrough(t *testing.T) {
	p := leading(t, func(c *Config) { c.Send = func([]*raftpb.Message) { t.Error("Send was called") } })
	if !p.Incoming(&raftpb.Message{Type: raftpb.MsgReadIndex.Enum()}) {
		t.Error("Incoming(own read index) = false, want raft to see it")
	}
}

// A leader that does not know its own term must not answer as a leader.
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
		t.Errorf("Ready() let %v out, want an answer below the term's first entry kept back", msgs)
	}
	if msgs := let(p.last); len(msgs) != 1 {
		t.Errorf("Ready() let %d messages out, want the answer", len(msgs))
	}
}

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
		t.Error("Incoming() let an answer in without attestation")
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

// roundAsked starts a ReadIndex read on a puppet that follows node 2, and
// returns the request.
func roundAsked(p *puppet) (rctx []byte, o *outcome) {
	o = &outcome{}
	p.StartReadIndex(context.Background(), func(r ReadResult, err error) { o.calls, o.read, o.err = o.calls+1, r, err })
	return p.asked(), o
}

// answerTo is what node 2 answers to a request, with what attests it.
func (p *puppet) answerTo(rctx []byte, kind byte) {
	m := p.message(raftpb.MsgReadIndexResp, 2, 1)
	m.Index, m.Entries = new(p.last), []*raftpb.Entry{{Data: rctx}}
	attach(m, kind, m.GetTerm())
	p.Incoming(m)
}

// A ReadIndex read on a follower says that it wants a round, and a leader under
// a valid lease lets raft make one.
func TestLeaderMakesARoundOnRequest(t *testing.T) {
	f := newPuppet(t)
	f.follow(2, 2)
	round, _ := roundAsked(f)
	f.startRead()
	f.answer(round, 1) // the round of the first; the second asks for itself
	plain := f.asked()
	if _, quorum, ours := f.nonce.seq(plain); quorum || !ours {
		t.Error("an ordinary read asks for a round, want it not to")
	}

	for _, tc := range []struct {
		name string
		rctx []byte
		raft bool
		kind byte
	}{
		{"a request for a round", round, true, kindRound},
		{"a plain request", plain, false, kindAnswer},
		{"a node that does not know of rounds", []byte("request 17"), false, kindAnswer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent []*raftpb.Message
			p := leading(t, func(c *Config) { c.Send = func(ms []*raftpb.Message) { sent = append(sent, ms...) } })
			m := p.message(raftpb.MsgReadIndex, 2, 1)
			m.Entries = []*raftpb.Entry{{Data: tc.rctx}}
			if got := p.Incoming(m); got != tc.raft {
				t.Fatalf("Incoming(read index) = %t under a valid lease, want %t", got, tc.raft)
			}
			if tc.raft {
				resp := p.message(raftpb.MsgReadIndexResp, 1, 2)
				resp.Index, resp.Entries = new(p.last), m.GetEntries()
				sent = p.Ready(raft.Ready{Messages: []*raftpb.Message{resp}})
			}
			if len(sent) != 1 {
				t.Fatalf("sent %v, want one answer", sent)
			}
			if _, err := fieldOf(sent[0], tc.kind, 1); err != nil {
				t.Errorf("what attests the answer: %v, want kind %d", err, tc.kind)
			}
		})
	}
}

// A leader before the first commit of its term keeps a request for a round, and
// makes a round for it, also if a renewal comes first.
func TestNewLeaderKeepsARequestForARound(t *testing.T) {
	var sent []*raftpb.Message
	p := newPuppet(t, func(c *Config) { c.Send = func(ms []*raftpb.Message) { sent = append(sent, ms...) } })
	p.win(2)
	m := p.message(raftpb.MsgReadIndex, 2, 1)
	m.Entries = []*raftpb.Entry{{Data: nonce{9}.id(1, true)}}
	if p.Incoming(m) {
		t.Fatal("Incoming(read index) = true before a commit of the term, want it kept")
	}
	p.asked()
	p.commitTo(p.last)
	p.Applied(p.last)
	p.clock.Advance(ms)
	p.renew()
	if len(sent) != 0 {
		t.Fatalf("sent %v after a renewal, want nothing before the round", sent)
	}
	for range 2 * p.cfg.Raft.ElectionTick {
		p.Tick()
	}
	p.answer(p.asked(), p.last)
	if len(sent) != 1 {
		t.Fatalf("sent %v after the round, want an answer", sent)
	}
	if byRound, err := answerOf(sent[0]); !byRound || err != nil {
		t.Errorf("answerOf() = %t, %v, want an answer by a round", byRound, err)
	}
}

// A leader of a version that does not know the mark attests its answer, but
// not that it made a round: reads that trust no clock fail, others are served.
func TestAnswerOfALeaseIsNoRound(t *testing.T) {
	p := newPuppet(t)
	p.follow(2, 2)
	rctx, round := roundAsked(p)
	if _, quorum, _ := p.nonce.seq(rctx); !quorum {
		t.Fatal("a ReadIndex read does not ask for a round")
	}
	if p.answerTo(rctx, kindRound); round.calls != 1 || round.err != nil || round.read.Path != PathForwarded {
		t.Errorf("ReadIndex() = %+v, %v after %d calls, want it served by the round", round.read, round.err, round.calls)
	}

	first := p.startRead()
	under := p.asked()
	o := &outcome{}
	p.StartReadIndex(context.Background(), func(r ReadResult, err error) { o.calls, o.read, o.err = o.calls+1, r, err })
	plain := p.startRead()
	p.answerTo(under, kindAnswer)
	if first.calls != 1 || o.calls != 0 {
		t.Fatalf("after an answer to an ordinary request: Read() %d calls, ReadIndex() %d, want 1, 0", first.calls, o.calls)
	}
	// The next round is for both.
	p.answerTo(p.asked(), kindAnswer)
	if o.calls != 1 || !errors.Is(o.err, ErrLeaderTooOld) || !errors.Is(o.err, ErrNoLease) {
		t.Errorf("ReadIndex() = %+v, %v after %d calls, want ErrLeaderTooOld", o.read, o.err, o.calls)
	}
	if plain.calls != 1 || plain.err != nil {
		t.Errorf("Read() = %+v, %v after %d calls, want it served", plain.read, plain.err, plain.calls)
	}
}

// A request that was lost while no read waited any more delays no later read.
func TestALostRoundOfReadsGivenUpIsAskedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := following(t)
		ctx, cancel := context.WithCancel(t.Context())
		p.StartRead(ctx, func(ReadResult, error) {})
		if p.asked() == nil {
			t.Fatal("the first read asks for nothing")
		}
		cancel()
		synctest.Wait()
		half := p.cfg.Raft.ElectionTick / 2
		for range half - 1 {
			p.Tick()
		}
		p.startRead()
		if p.asked() != nil {
			t.Error("a read asks for a round of its own while one may be under way")
		}
		p.follow(2, 0) // both reads are over
		p.follow(2, 3)
		ctx, cancel = context.WithCancel(t.Context())
		p.StartRead(ctx, func(ReadResult, error) {})
		p.asked()
		cancel()
		synctest.Wait()
		for range half {
			p.Tick()
		}
		if p.startRead(); p.asked() == nil {
			t.Errorf("a read %d ticks after a request that was lost asks for nothing", half)
		}
	})
}
