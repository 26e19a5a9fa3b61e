package leaderlease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

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
func TestLeaderMakesARoundForWhoWantsOne(t *testing.T) {
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
		{"who wants a round", round, true, kindRound},
		{"who does not", plain, false, kindAnswer},
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

// A request that was lost while nobody waited any more delays no later read.
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
