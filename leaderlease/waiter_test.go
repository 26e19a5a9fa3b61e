package leaderlease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/leaderlease/go/leaderlease/core"
)

// A list of waiters does what a plain slice would, in any order of calls.
func TestWaitlistIsASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q waitlist
		var model, everMade []*waiter
		drop := func(gone func(*waiter) bool) { model = slices.DeleteFunc(model, gone) }
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				w := &waiter{read: ReadResult{Index: rapid.Uint64Range(1, 9).Draw(t, "index")}}
				q.insert(w)
				model, everMade = append(model, w), append(everMade, w)
				slices.SortStableFunc(model, func(a, b *waiter) int { return int(a.read.Index) - int(b.read.Index) })
			case 1:
				if len(everMade) > 0 {
					left := rapid.SampledFrom(everMade).Draw(t, "who")
					left.abandon()
					drop(func(w *waiter) bool { return w == left })
				}
			case 2:
				applied := rapid.Uint64Range(0, 9).Draw(t, "applied")
				want := slices.Clone(model)
				want = slices.DeleteFunc(want, func(w *waiter) bool { return w.read.Index > applied })
				if got := q.takeApplied(applied); !slices.Equal(got, want) {
					t.Fatalf("reached(%d) returned %d waiters, want %d, in order", applied, len(got), len(want))
				}
				drop(func(w *waiter) bool { return w.read.Index <= applied })
			case 3:
				odd := func(w *waiter) bool { return w.read.Index%2 == 1 }
				if got, want := len(q.take(odd)), len(model); got > want {
					t.Fatalf("take() returned %d waiters of %d", got, want)
				}
				drop(odd)
			}
			if q.len() != len(model) {
				t.Fatalf("len() = %d, want %d", q.len(), len(model))
			}
			if kept := len(q.all); kept > 2*len(model)+1 {
				t.Fatalf("%d waiters are kept for %d that wait, want at most twice as many", kept, len(model))
			}
		}
	})
}

// A sole voter that has just won answers ReadIndex at once and with whatever it
// knows to be committed; the answer may come to light together with the first
// commit of the term. Found by review: index 1 was served at commit 6.
func TestRaftsAnswerBelowTheTermIsNotServed(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.Disabled = true })
	p.win(2)
	var got ReadResult
	p.StartRead(context.Background(), func(r ReadResult, err error) {
		if err != nil {
			t.Errorf("StartRead() = %v", err)
		}
		got = r
	})
	early := <-p.ReadRequests()
	p.Ready(raft.Ready{
		HardState:  p.hard(p.last),
		ReadStates: []raft.ReadState{{Index: p.last - 1, RequestCtx: early}},
	})
	p.Applied(p.last)
	if got != (ReadResult{}) {
		t.Fatalf("StartRead() was served %+v by an answer below the term's first entry", got)
	}
	p.Ready(raft.Ready{ReadStates: []raft.ReadState{{Index: p.last, RequestCtx: <-p.ReadRequests()}}})
	if got.Index != p.last || got.Path != PathReadIndex {
		t.Errorf("StartRead() = %+v, want index %d by read_index", got, p.last)
	}
}

// Forwarded, the same answer must not leave.
func TestRaftsAnswerBelowTheTermDoesNotLeave(t *testing.T) {
	p := newPuppet(t)
	p.win(2)
	p.commitTo(p.last)
	for index, want := range map[uint64]int{p.last - 1: 0, p.last: 1} {
		resp := p.message(raftpb.MsgReadIndexResp, 1, 2)
		resp.Index = new(index)
		if msgs := p.Ready(raft.Ready{Messages: []*raftpb.Message{resp}}); len(msgs) != want {
			t.Errorf("Ready() let %d answers of index %d out, want %d", len(msgs), index, want)
		}
	}
}

// The error of a read after the end of its context says what it waited for.
func TestAReadSaysWhatItWaitsFor(t *testing.T) {
	tests := []struct {
		name  string
		build func(testing.TB, ...func(*Config)) *puppet
		event func(*puppet)
		want  string
	}{
		{"the state machine", leading, func(p *puppet) { p.commitNew() }, "waits for Applied to reach 3, now 2"},
		{"a round that raft is not asked for", expired, func(*puppet) {}, "waits for ReadIndex to be called with what ReadRequests delivers, try 1"},
		{"the first commit", newPuppet, func(p *puppet) { p.win(2) }, "waits for the first commit of the term"},
		{"a misuse", expired, func(p *puppet) { p.misuse("a rule", false) }, "leaderlease: misuse: a rule"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := tc.build(t)
				tc.event(p)
				wantWait(t, p, func() {}, tc.want)
			})
		})
	}
	for name, tc := range map[string]struct {
		build func(testing.TB, ...func(*Config)) *puppet
		want  string
	}{
		"a round":             {expired, "waits for a quorum round, try 3"},
		"the leader's answer": {following, "waits for an answer of leader 3, try 3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := tc.build(t)
				wantWait(t, p, func() {
					for range 2*p.cfg.Raft.ElectionTick/2 + 1 {
						p.asked()
						p.Tick()
					}
					p.asked()
				}, tc.want)
			})
		})
	}
}

// wantWait reads, lets meanwhile happen, ends the context and looks at the error.
func wantWait(t *testing.T, p *puppet, meanwhile func(), want string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read := p.readSoon(ctx)
	synctest.Wait()
	meanwhile()
	cancel()
	if a := <-read; !errors.Is(a.err, context.Canceled) || errors.Is(a.err, ErrNoLease) || !strings.Contains(a.err.Error(), want) {
		t.Errorf("Read() = %v, want context.Canceled, and %q", a.err, want)
	}
	if n := p.Info().Waiting; n != 0 {
		t.Errorf("Info().Waiting = %d after the context has ended, want 0", n)
	}
}

// A started read ends with its context, once, and is forgotten; or it is served, and
// the end of the context changes nothing.
func TestStartReadEndsWithItsContext(t *testing.T) {
	for _, served := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := leading(t)
			p.commitNew()
			ctx, cancel := context.WithCancel(t.Context())
			o := &outcome{}
			p.StartRead(ctx, func(r ReadResult, err error) { o.calls, o.read, o.err = o.calls+1, r, err })
			if served {
				p.Applied(p.last)
			}
			cancel()
			synctest.Wait()
			if o.calls != 1 || served != (o.err == nil) || !served && !errors.Is(o.err, context.Canceled) {
				t.Errorf("served %v: done was called %d times with %v", served, o.calls, o.err)
			}
			if n := p.Info().Waiting; n != 0 {
				t.Errorf("served %v: Info().Waiting = %d, want 0", served, n)
			}
			p.Applied(p.last)
			p.follow(3, 0)
			if o.calls != 1 {
				t.Errorf("served %v: done was called %d times, want once", served, o.calls)
			}
		})
	}
}

// lateContext ends between the first look at it and the second.
type lateContext struct {
	context.Context
	looks int
}

func (c *lateContext) Err() error {
	if c.looks++; c.looks == 1 {
		return nil
	}
	return context.Canceled
}

func TestAContextThatEndsBeforeTheReadWaits(t *testing.T) {
	waits, refused := expired(t), expired(t)
	refused.Close()
	for want, p := range map[error]*puppet{context.Canceled: waits, ErrNoLease: refused} {
		inner, cancel := context.WithCancel(t.Context())
		var got error
		calls := 0
		p.StartReadIndex(&lateContext{Context: inner}, func(_ ReadResult, err error) { calls, got = calls+1, err })
		if calls != 1 || !errors.Is(got, want) {
			t.Errorf("StartReadIndex() called done %d times with %v, want once, at once, with %v", calls, got, want)
		}
		if n := p.Info().Waiting; n != 0 {
			t.Errorf("Info().Waiting = %d, want 0", n)
		}
		cancel()
	}
}

// Reads that wait for a state machine which does not move are warned of, rarely.
func TestReadsThatWaitForAppliedAreWarnedOf(t *testing.T) {
	var log strings.Builder
	p := leading(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	warned := func() int { return strings.Count(p.logged(&log), "level=WARN") }
	timeout := p.cfg.Raft.ElectionTick
	index := p.commitNew()
	p.startRead()
	for range timeout {
		p.Tick()
	}
	if warned() != 0 {
		t.Errorf("warned after %d ticks: %s", timeout-1, log.String())
	}
	p.Tick()
	if want := fmt.Sprintf("index=%d applied=%d", index, index-1); warned() != 1 || !strings.Contains(log.String(), want) {
		t.Errorf("log = %q, want one warning with %q", log.String(), want)
	}
	for range 64*timeout - 2 {
		p.Tick()
	}
	if n := warned(); n > 2 {
		t.Errorf("%d warnings in %d ticks, want 2 at most", n, 65*timeout)
	}
	before := warned()
	p.Applied(index)
	for range 2 * timeout {
		p.commitNew()
		p.startRead()
		p.Tick()
		p.Applied(p.last)
	}
	if n := warned(); n != before {
		t.Errorf("%d warnings more of a state machine that moves, want none", n-before)
	}
}

// Leases that are gained and lost are in the log at the level that handlers show.
func TestGainAndLossAreLogged(t *testing.T) {
	var log strings.Builder
	p := leading(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	p.clock.Advance(time.Second)
	p.Tick()
	for _, want := range []string{`level=INFO msg="lease gained" component=leaderlease id=1 term=2`, `level=INFO msg="lease lost" component=leaderlease id=1 term=2 reason=expired`} {
		if got := p.logged(&log); strings.Count(got, want) != 1 {
			t.Errorf("log = %q, want %q once", got, want)
		}
	}
}

// RetryAfter is when the answer may be another: here, or not at all.
func TestRetryAfter(t *testing.T) {
	held := newPuppet(t, func(c *Config) { restartedAlone(t, c) })
	held.clock.Advance(300 * ms)
	freed := newPuppet(t, func(c *Config) { restartedAlone(t, c) })
	freed.clock.Advance(900 * ms)
	bound := bound(t)
	bound.clock.Advance(300 * ms)
	closed := leading(t)
	closed.Close()
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
	}{
		"restart hold":      {held.CanCampaign(), 600 * ms},
		"the hold's end":    {freed.startRead().err, 100 * ms}, // no Tick has noticed it yet
		"promise":           {bound.CanCampaign(), 600 * ms},
		"no quorum answers": {second(expired(t).Token()), 100 * ms},
		"ask at the leader": {second(following(t).Token()), 0},
		"final":             {second(closed.Token()), 0},
	} {
		if nl, ok := errors.AsType[*NoLeaseError](tc.err); !ok || nl.RetryAfter != tc.want {
			t.Errorf("%s: %v, want RetryAfter %v", name, tc.err, tc.want)
		}
	}
	if err := bound.CanCampaign(); !errors.Is(err, errBound) {
		t.Errorf("CanCampaign() of a bound node = %v, want the cause %v", err, errBound)
	}
}

// A follower that asks waits for its own state machine, not for the leader's.
func TestAnAnswerForAFollowerNeedsNoApplied(t *testing.T) {
	var sent []*raftpb.Message
	p := newPuppet(t, func(c *Config) { c.Send = func(msgs []*raftpb.Message) { sent = append(sent, msgs...) } })
	p.win(2)
	if p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1)) {
		t.Fatal("raft sees the request before a commit of the term")
	}
	p.commitTo(p.last)
	p.renew()
	if len(sent) != 1 || sent[0].GetIndex() != p.last {
		t.Errorf("sent %v with Applied at %d, want index %d", sent, p.Info().Applied, p.last)
	}
}

// Send is called in the goroutine of the methods that Config.Send names, and with
// no lock: whatever does not block may be called from it.
func TestSendIsCalledFromWhatItsCommentSays(t *testing.T) {
	// waits is a new leader that keeps the read of a follower.
	waits := func(t *testing.T, sent *int) *puppet {
		var p *puppet
		p = newPuppet(t, func(c *Config) {
			c.Send = func([]*raftpb.Message) {
				if *sent++; *sent > 1 {
					return // it asks within itself
				}
				p.Info()
				p.Tick()
				p.Incoming(p.message(raftpb.MsgReadIndex, 3, 1))
				p.Applied(p.last)
				p.StartRead(context.Background(), func(ReadResult, error) {})
			}
		})
		p.win(2)
		p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1))
		return p
	}
	for name, end := range map[string]func(p *puppet, sent *int) int{
		"Incoming": func(p *puppet, sent *int) int { p.commitTo(p.last); n := *sent; p.renew(); return *sent - n },
		"ApplyConfState": func(p *puppet, sent *int) int {
			h := p.heartbeat()
			p.commitTo(p.last)
			p.commitChanges(1)
			p.Incoming(p.granted(h))
			n := *sent
			p.ApplyConfState(voters(1, 2, 3))
			return *sent - n
		},
		"SetDiskStalled": func(p *puppet, sent *int) int {
			p.SetDiskStalled(true)
			p.commitTo(p.last)
			p.renew()
			n := *sent
			p.SetDiskStalled(false)
			return *sent - n
		},
	} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			if n := end(waits(t, &sent), &sent); n == 0 {
				t.Errorf("Send was not called from within %s", name)
			}
		})
	}
	sent := 0
	p := waits(t, &sent)
	p.commitTo(p.last)
	p.Applied(p.last)
	p.startRead()
	p.Info()
	if sent != 0 {
		t.Errorf("Send was called %d times from Applied or a read, want never", sent)
	}
	p.want(core.Expired)
}

// hookContext counts what is to be called at its end.
type hookContext struct {
	context.Context
	done  chan struct{}
	hooks int
}

func (c *hookContext) Done() <-chan struct{} { return c.done }

// AfterFunc is what context.AfterFunc asks of contexts that are none of its own.
func (c *hookContext) AfterFunc(func()) (stop func() bool) {
	c.hooks++
	return func() bool { c.hooks--; return true }
}

// A read that is over leaves nothing in its context, which may live for as long as the
// process, also where it is answered or refused while it starts.
func TestAReadThatIsOverLeavesNothingInItsContext(t *testing.T) {
	ctx := &hookContext{Context: t.Context(), done: make(chan struct{})}
	refused, got := errors.New("not called"), error(nil)
	newPuppet(t).StartRead(ctx, func(_ ReadResult, err error) { refused = err })
	if !errors.Is(refused, ErrNoLease) || ctx.hooks != 0 {
		t.Errorf("StartRead() without a leader = %v, and leaves %d hooks, want %v and none", refused, ctx.hooks, ErrNoLease)
	}
	p := leading(t)
	p.StartReadIndex(ctx, func(_ ReadResult, err error) { got = err })
	if ctx.hooks != 1 {
		t.Errorf("StartReadIndex() that waits leaves %d hooks, want one, or this proves little", ctx.hooks)
	}
	if p.follow(3, 2); got == nil || ctx.hooks != 0 {
		t.Errorf("StartReadIndex() = %v at the end of the term, and leaves %d hooks, want an error and none", got, ctx.hooks)
	}
}

// Reads that are over are not kept by the list that they waited in.
func TestReadsThatAreOverAreNotKept(t *testing.T) {
	var q waitlist
	for i := range uint64(4) {
		q.push(&waiter{read: ReadResult{Index: i}})
	}
	q.take(func(w *waiter) bool { return w.read.Index%2 == 0 })
	for i, w := range q.all[:4] {
		if over := i >= q.len(); over != (w == nil) {
			t.Errorf("place %d of 4 is taken: %v, of a list of %d", i, w != nil, q.len())
		}
	}
}
