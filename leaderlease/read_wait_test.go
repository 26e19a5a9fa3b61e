package leaderlease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/leaderlease/go/leaderlease/core"
)

func TestReadWaitsUntilItsIndexIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := leading(t)
		first, second := p.commitNew(), p.commitNew()
		read := p.readSoon(t.Context())
		synctest.Wait()
		p.Applied(first)
		synctest.Wait()
		if n := p.Info().Waiting; n != 1 {
			t.Fatalf("Info().Waiting = %d before index %d is applied, want 1", n, second)
		}
		p.Applied(second)
		if a := <-read; a.read.Index != second || a.read.Path != PathLease || a.err != nil {
			t.Errorf("Read() = %+v, %v, want index %d under the lease", a.read, a.err, second)
		}
	})
}

func TestReadEndsWithItsContext(t *testing.T) {
	tests := []struct {
		name  string
		build func(testing.TB) *puppet
	}{
		{"while it waits for an index", func(tb testing.TB) *puppet { return expired(tb) }},
		{"while it waits for the state machine", func(tb testing.TB) *puppet {
			p := leading(tb)
			p.commitNew()
			return p
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := tc.build(t)
				ctx, cancel := context.WithCancel(t.Context())
				read, stays := p.readSoon(ctx), p.startRead()
				synctest.Wait()
				cancel()
				if a := <-read; !errors.Is(a.err, context.Canceled) || a.read != (ReadResult{}) {
					t.Errorf("Read() = %+v, %v, want nothing and context.Canceled", a.read, a.err)
				}
				if n := p.Info().Waiting; n != 1 {
					t.Errorf("Info().Waiting = %d, want the other read only", n)
				}
				// What comes for the read that has gone must do no harm.
				p.renew()
				p.Applied(p.last)
				if stays.calls != 1 || stays.err != nil {
					t.Errorf("the other read: called %d times, error %v, want once and served", stays.calls, stays.err)
				}
			})
		})
	}
}

// Reads that are given up by the thousand, as when a quorum is lost, leave
// nothing behind.
func TestAbandonedReadsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := expired(t)
		stays := p.startRead()
		ctx, cancel := context.WithCancel(t.Context())
		for range 1000 {
			p.readSoon(ctx)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if n := p.Info().Waiting; n != 1 {
			t.Errorf("Info().Waiting = %d after 1000 of 1001 reads were given up, want 1", n)
		}
		p.renew()
		if stays.calls != 1 || stays.err != nil {
			t.Errorf("the read that stayed: called %d times, error %v, want once and served", stays.calls, stays.err)
		}
	})
}

// Close also fails the reads that only wait for the state machine, since it may
// never get there; a change of leader does not, since their index is sound.
func TestWhatEndsTheWaitForTheStateMachine(t *testing.T) {
	p := leading(t)
	p.commitNew()
	o := p.startRead()
	p.follow(3, 2)
	if o.calls != 0 {
		t.Fatalf("read = %+v, %v when leadership moved, want it to wait for index %d", o.read, o.err, p.last)
	}
	p.Applied(p.last)
	if o.calls != 1 || o.err != nil || o.read.Path != PathLease || o.read.Term != 2 {
		t.Errorf("read = %+v, %v, want it served under the lease of term 2", o.read, o.err)
	}

	p = leading(t)
	p.commitNew()
	o = p.startRead()
	p.Close()
	if nl, ok := errors.AsType[*NoLeaseError](o.err); o.calls != 1 || !ok || nl.Status != core.Closed {
		t.Errorf("read after Close = %+v, called %d times, error %v, want closed", o.read, o.calls, o.err)
	}
}

// A follower that asks a leader which has only just won is answered once that
// one knows the answer. Asking again took half an election timeout.
func TestForwardedReadWaitsForTheTermsFirstCommit(t *testing.T) {
	var sent []*raftpb.Message
	p := newPuppet(t, func(c *Config) {
		c.Send = func(msgs []*raftpb.Message) { sent = append(sent, msgs...) }
	})
	p.win(2)
	ask := p.message(raftpb.MsgReadIndex, 2, 1)
	ask.Entries = []*raftpb.Entry{{Data: []byte("the follower's request")}}
	if p.Incoming(ask) {
		t.Fatal("Incoming() passes a read on before the term's first commit")
	}
	rctx := p.asked()
	if rctx == nil {
		t.Fatal("ReadRequests() is empty, want a round for the follower's read")
	}
	p.answer(rctx, p.last-1) // raft's early answer: of before the term
	if len(sent) != 0 {
		t.Fatalf("sent %v before the term's first commit", sent)
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

// A leader that steps down before does not answer a request.
func TestForwardedReadEndsWithTheTerm(t *testing.T) {
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
		t.Errorf("sent %v in a later term, want nothing", sent)
	}
}

func TestReadIndexTakesARoundUnderAValidLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := leading(t)
		read := make(chan answered, 1)
		go func() {
			r, err := p.ReadIndex(t.Context())
			read <- answered{r, err}
		}()
		synctest.Wait()
		rctx := p.asked()
		if rctx == nil {
			t.Fatal("ReadRequests() is empty, want a round although the lease is valid")
		}
		p.clock.Advance(ms)
		p.renew() // must not answer it either
		synctest.Wait()
		select {
		case a := <-read:
			t.Fatalf("ReadIndex() = %+v, %v before the round came back", a.read, a.err)
		default:
		}
		p.answer(rctx, p.last)
		if a := <-read; a.err != nil || a.read.Path != PathReadIndex || a.read.Index != p.last {
			t.Errorf("ReadIndex() = %+v, %v, want index %d by read_index", a.read, a.err, p.last)
		}
	})
}

// A read that asked for a round before the term's first commit is not given
// the moment of that commit, from which a renewal could answer it.
func TestReadIndexBeforeTheFirstCommitWaitsForItsRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		p.win(2)
		ctx, cancel := context.WithCancel(t.Context())
		read := make(chan answered, 1)
		go func() {
			r, err := p.ReadIndex(ctx)
			read <- answered{r, err}
		}()
		synctest.Wait()
		p.commitTo(p.last)
		p.Applied(p.last)
		p.clock.Advance(ms)
		p.renew()
		synctest.Wait()
		cancel()
		if a := <-read; a.err == nil {
			t.Errorf("ReadIndex() = %+v without a round, want its context's error", a.read)
		}
	})
}

// tracked is a StartRead of a random schedule, with what was true when it began.
type tracked struct {
	outcome
	commit uint64
}

// reader is a puppet that is told to do anything in any order.
type reader struct {
	*puppet
	reads    []*tracked
	asks     [][]byte
	inFlight []*raftpb.Message // answers to heartbeats that have not arrived
}

func (s *reader) start(rt *rapid.T, again int) {
	tr := &tracked{commit: s.commit.Load()}
	s.reads = append(s.reads, tr)
	s.StartRead(context.Background(), func(r ReadResult, err error) {
		tr.calls++
		tr.read, tr.err = r, err
		if tr.calls > 1 {
			rt.Fatalf("done was called %d times", tr.calls)
		}
		if err == nil && (r.Index < tr.commit || r.Index > s.applied.Load() || r.Path == PathNone) {
			rt.Fatalf("read = %+v, want an index in [%d, %d]: committed before the read began, and applied", r, tr.commit, s.applied.Load())
		}
		if again > 0 {
			s.start(rt, again-1)
		}
	})
}

func (s *reader) collect() {
	if rctx := s.asked(); rctx != nil {
		s.asks = append(s.asks, rctx)
	}
}

// The probes of this schedule are the leader's own; the answers may be late,
// lost or repeated.
func (s *reader) beat() {
	for _, m := range s.Ready(raft.Ready{Messages: []*raftpb.Message{s.message(raftpb.MsgHeartbeat, 1, 2)}}) {
		if _, err := probeOf(m); err == nil {
			s.inFlight = append(s.inFlight, s.granted(m))
		}
	}
}

func (s *reader) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"read":       func(rt *rapid.T) { s.start(rt, rapid.IntRange(0, 2).Draw(rt, "again")) },
		"read, late": func(rt *rapid.T) { s.clock.Advance(900 * ms); s.start(rt, 1) },
		"time":       func(rt *rapid.T) { s.clock.Advance(time.Duration(rapid.IntRange(1, 500).Draw(rt, "ms")) * ms) },
		"tick":       func(*rapid.T) { s.Tick() },
		"commit":     func(*rapid.T) { s.commitNew() },
		"apply":      func(*rapid.T) { s.Applied(s.commit.Load()) },
		"beat":       func(*rapid.T) { s.beat() },
		"renew": func(rt *rapid.T) {
			s.clock.Advance(ms)
			s.beat()
			if n := len(s.inFlight); n > 0 {
				s.Incoming(s.inFlight[n-1])
			}
		},
		"lead":       func(*rapid.T) { s.lead(s.term + 1); s.beat() },
		"win":        func(*rapid.T) { s.win(s.term + 1) },
		"follow":     func(rt *rapid.T) { s.follow(s.term+1, rapid.Uint64Range(2, 3).Draw(rt, "leader")); s.start(rt, 0) },
		"forget":     func(*rapid.T) { s.follow(s.term, 0) },
		"invalidate": func(*rapid.T) { s.invalidate() },
		"disrupt":    func(*rapid.T) { s.clock.marker.Add(1) },
		"stall":      func(rt *rapid.T) { s.SetDiskStalled(rapid.IntRange(0, 3).Draw(rt, "stalled") == 0) },
		"change": func(*rapid.T) {
			s.commitChanges(1)
			s.ApplyConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}})
		},
		"grant": func(rt *rapid.T) {
			if n := len(s.inFlight); n > 0 {
				// Mostly the newest.
				s.Incoming(s.inFlight[max(n-1-rapid.IntRange(0, 2).Draw(rt, "older"), 0)])
			}
		},
		"answer": func(rt *rapid.T) {
			s.collect()
			if len(s.asks) == 0 {
				return
			}
			i := rapid.IntRange(0, len(s.asks)-1).Draw(rt, "request")
			s.answer(s.asks[i], s.commit.Load())
			s.asks = s.asks[i+1:]
		},
		"close": func(rt *rapid.T) {
			// Rarely, or little else would be seen.
			if rapid.IntRange(0, 29).Draw(rt, "close") == 29 {
				s.Close()
			}
		},
	}
}

// Whatever happens, in whatever order: each read is answered exactly once, with
// an index that was not passed by any commit before it began, and after the
// state machine got there.
func TestEachReadIsAnsweredOnce(t *testing.T) {
	served := map[Path]int{}
	rapid.Check(t, func(rt *rapid.T) {
		s := &reader{puppet: leading(t)}
		actions := s.actions()
		names := slices.Sorted(maps.Keys(actions))
		for range 200 {
			actions[rapid.SampledFrom(names).Draw(rt, "action")](rt)
		}
		s.Close()
		if n := s.Info().Waiting; n != 0 {
			rt.Fatalf("Info().Waiting = %d after Close, want 0", n)
		}
		for i, tr := range s.reads {
			if tr.calls != 1 {
				rt.Fatalf("read %d of %d was answered %d times, want once", i, len(s.reads), tr.calls)
			}
			served[tr.read.Path]++
		}
		if _, status := s.TryRead(); status != core.Closed {
			rt.Fatalf("TryRead() after Close = %v, want %v", status, core.Closed)
		}
	})
	t.Logf("answered by path: %v", served)
	for p := range Path(numPaths) {
		if served[p] == 0 {
			t.Errorf("no read was answered by path %v: the schedules are too tame", p)
		}
	}
}
