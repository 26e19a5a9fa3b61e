package leaderlease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// next returns the event that waits, or fails the test.
func next(tb testing.TB, events <-chan Event) Event {
	tb.Helper()
	select {
	case e := <-events:
		return e
	default:
		tb.Fatal("no event waits")
		return Event{}
	}
}

func wantEvent(tb testing.TB, events <-chan Event, want Event) {
	tb.Helper()
	if got := next(tb, events); got != want {
		tb.Fatalf("event = %+v, want %+v", got, want)
	}
}

func none(tb testing.TB, events <-chan Event) {
	tb.Helper()
	select {
	case e, open := <-events:
		if open {
			tb.Fatalf("event %+v, want none", e)
		}
	default:
	}
}

func TestWatchBeginsWithThePresent(t *testing.T) {
	p := newPuppet(t)
	events, stop := p.Watch()
	wantEvent(t, events, Event{Term: 0, Status: core.NotLeader})
	stop()
	p.lead(2)
	p.renew()
	none(t, events)
	events, stop = p.Watch()
	defer stop()
	wantEvent(t, events, Event{Held: true, Term: 2, Status: core.Valid})
	none(t, events)

	// A lease that has run out since the last tick is not reported as held.
	p.clock.Advance(usable)
	late, stopLate := p.Watch()
	defer stopLate()
	wantEvent(t, late, Event{Term: 2, Status: core.Margin})
	wantEvent(t, events, Event{Term: 2, Status: core.Margin})
}

func TestWatchReportsEachLoss(t *testing.T) {
	for _, tc := range losses {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := leading(t, bubbled)
				events, stop := p.Watch()
				defer stop()
				wantEvent(t, events, Event{Held: true, Term: 2, Status: core.Valid})
				tc.lose(p)
				p.Tick()
				// Whatever term it is by now, term 2 has lost its lease.
				wantEvent(t, events, Event{Term: 2, Status: tc.want})
				p.Tick()
				none(t, events)
				if n := p.Stats().Losses[tc.want]; n != 1 {
					t.Errorf("Stats().Losses[%v] = %d, want 1", tc.want, n)
				}
			})
		})
	}
}

// Renewals are no news; a lease that comes back is.
func TestWatchReportsGains(t *testing.T) {
	p := leading(t)
	events, stop := p.Watch()
	defer stop()
	next(t, events)
	for range 20 {
		p.clock.Advance(100 * ms)
		p.renew()
		p.Tick()
	}
	none(t, events)
	p.clock.Advance(900 * ms)
	p.Tick()
	p.renew()
	wantEvent(t, events, Event{Term: 2, Status: core.Expired})
	wantEvent(t, events, Event{Held: true, Term: 2, Status: core.Valid})
	none(t, events)
	if n := p.Stats().Losses[core.Expired]; n != 1 {
		t.Errorf("leases expired: %d, want 1", n)
	}
}

// A slow receiver loses the oldest events, sees the newest, and can tell how
// many it has lost; no call waits for it.
func TestSlowWatcherIsToldWhatItMissed(t *testing.T) {
	for _, total := range []int{watchBuffer, watchBuffer + 1, 2*watchBuffer + 1, 5 * watchBuffer} {
		p := leading(t)
		events, stop := p.Watch()
		for i := range total - 1 {
			p.clock.Advance(900 * ms)
			if p.Tick(); i%2 == 1 {
				p.renew()
			}
		}
		received, missed := 0, 0
		var newest Event
		for len(events) > 0 {
			newest = <-events
			received++
			missed += newest.Missed
		}
		stop()
		if received != min(total, watchBuffer) || received+missed != total {
			t.Errorf("of %d events %d were received and %d reported missed, want %d and %d",
				total, received, missed, min(total, watchBuffer), total-min(total, watchBuffer))
		}
		if newest.Held != (p.mu.heldTerm != 0) {
			t.Errorf("newest event = %+v, want the present state, held: %v", newest, p.mu.heldTerm)
		}
	}
}

func TestWatchersAreIndependent(t *testing.T) {
	p := leading(t)
	slow, stopSlow := p.Watch()
	defer stopSlow()
	fast, stopFast := p.Watch()
	for range 3 * watchBuffer {
		next(t, fast)
		p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgTimeoutNow, 1, 2)}})
		if e := next(t, fast); e.Missed != 0 || e.Held {
			t.Fatalf("fast watcher: event = %+v, want each loss, none missed", e)
		}
		p.clock.Advance(1100 * ms)
		p.renew()
	}
	stopFast()
	stopFast() // more than once is allowed
	p.Close()
	if n := len(p.mu.watchers); n != 0 {
		t.Errorf("%d watchers are left after Close, want none", n)
	}
	var newest Event
	for len(slow) > 0 {
		newest = <-slow
	}
	if newest.Status != core.Closed || newest.Held {
		t.Errorf("slow watcher: newest event = %+v, want the lease closed", newest)
	}
}

// bubbled gives a puppet the clock of a synctest bubble, which its timers run
// on as well.
func bubbled(c *Config) { c.Clock = clock.Runtime() }

// losses are the ways to lose a lease that was renewed just now, and what is
// said about each.
var losses = []struct {
	name string
	lose func(*puppet)
	want core.Status
	leader,
	term uint64
}{
	{"time", func(*puppet) { time.Sleep(usable) }, core.Margin, 1, 2},
	{"step-down", func(p *puppet) { p.follow(3, 2) }, core.NotLeader, 2, 3},
	{"a term that follows at once", func(p *puppet) { p.win(3) }, core.NoOwnTermCommit, 1, 3},
	{"transfer", func(p *puppet) {
		p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgTimeoutNow, 1, 2)}})
	}, core.Transferring, 1, 2},
	{"invalidate", func(p *puppet) { p.invalidate() }, core.Expired, 1, 2},
	{"configuration change", func(p *puppet) { p.commitChanges(1) }, core.ConfPending, 1, 2},
	{"own removal", func(p *puppet) {
		p.commitChanges(1)
		p.ApplyConfState(&raftpb.ConfState{Voters: []uint64{2, 3}})
	}, core.ConfPending, 1, 2}, // pending came first
	{"disk", func(p *puppet) { p.SetDiskStalled(true) }, core.DiskStalled, 1, 2},
	{"misuse", func(p *puppet) { p.Applied(p.last + 1) }, core.Disabled, 1, 2},
	{"close", func(p *puppet) { p.Close() }, core.Closed, 1, 2},
	{"resignation", func(p *puppet) { p.Resign(2) }, core.Closed, 1, 2},
}

func TestWorkEndsWithTheLease(t *testing.T) {
	for _, tc := range losses {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := leading(t, bubbled)
				ctx, stop, err := p.Context(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				synctest.Wait()
				if ctx.Err() != nil {
					t.Fatalf("Context() has ended under a valid lease: %v", context.Cause(ctx))
				}
				tc.lose(p)
				synctest.Wait()
				nl, ok := errors.AsType[*NoLeaseError](context.Cause(ctx))
				if !ok || nl.Status != tc.want || nl.Leader != tc.leader || nl.Term != tc.term {
					t.Fatalf("Cause() = %v, want %v in term %d, leader %d", context.Cause(ctx), tc.want, tc.term, tc.leader)
				}
				if _, _, err := p.Context(t.Context()); !errors.Is(err, ErrNoLease) {
					t.Errorf("Context() without a lease = %v, want ErrNoLease", err)
				}
				if n := len(p.mu.work); n != 0 {
					t.Errorf("%d pieces of work are left, want none", n)
				}
			})
		})
	}
}

// Work ends to the nanosecond when the last renewal has run out, and not while
// there are renewals.
func TestWorkSurvivesRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := leading(t, bubbled)
		ctx, stop, err := p.Context(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		for range 50 {
			time.Sleep(100 * ms)
			p.renew()
			p.Tick()
		}
		time.Sleep(usable - 1)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatalf("work ended with a renewal %v ago: %v", usable-1, context.Cause(ctx))
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if nl, ok := errors.AsType[*NoLeaseError](context.Cause(ctx)); !ok || nl.Status != core.Margin {
			t.Errorf("Cause() = %v, want %v %v after the last renewal", context.Cause(ctx), core.Margin, usable)
		}
	})
}

// A sole voter's next term may begin in the very Ready that ends the last, so
// the lease is valid throughout; what was begun under the old one ends all the
// same, since another node may have led in between.
func TestANewTermEndsOldWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t, bubbled, func(c *Config) { c.Raft.Storage = bootstrapped(t, 1) })
		p.lead(2)
		old, stopOld, err := p.Context(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stopOld()
		p.term, p.last = 4, p.last+1
		p.Ready(raft.Ready{
			HardState: p.hard(p.last), Entries: []*raftpb.Entry{p.entry(p.last)}, CommittedEntries: []*raftpb.Entry{p.entry(p.last)},
		})
		p.want(core.Valid)
		if nl, ok := errors.AsType[*NoLeaseError](context.Cause(old)); !ok || nl.Term != 4 {
			t.Errorf("Cause() of work of term 2 = %v, want it ended in term 4", context.Cause(old))
		}
		renewed, stop, err := p.Context(t.Context())
		if err != nil || renewed.Err() != nil {
			t.Errorf("Context() in the new term = %v, want a live one", err)
		}
		stop()
	})
}

func TestStopEndsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := leading(t, bubbled)
		parent, cancel := context.WithCancel(t.Context())
		stopped, stop, err := p.Context(parent)
		if err != nil {
			t.Fatal(err)
		}
		child, stopChild, err := p.Context(parent)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		stop() // more than once is allowed
		if got := context.Cause(stopped); !errors.Is(got, context.Canceled) || errors.Is(got, ErrNoLease) {
			t.Errorf("Cause() after stop = %v, want context.Canceled", got)
		}
		if child.Err() != nil {
			t.Errorf("the other work ended too: %v", context.Cause(child))
		}
		cancel()
		if got := context.Cause(child); !errors.Is(got, context.Canceled) {
			t.Errorf("Cause() after the parent ended = %v, want context.Canceled", got)
		}
		stopChild()
		if n := len(p.mu.work); n != 0 {
			t.Errorf("%d pieces of work are left, want none", n)
		}
	})
}

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := leading(t, bubbled)
		broken := errors.New("broken on purpose")
		var seen context.Context
		err := p.Do(t.Context(), func(ctx context.Context) error {
			seen = ctx
			return broken
		})
		if !errors.Is(err, broken) {
			t.Errorf("Do() = %v, want the error of the work", err)
		}
		if seen.Err() == nil {
			t.Error("the context outlives Do, want it ended")
		}
		err = p.Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if nl, ok := errors.AsType[*NoLeaseError](err); !ok || nl.Status != core.Margin {
			t.Errorf("Do() past the lease = %v, want %v", err, core.Margin)
		}
		err = p.Do(t.Context(), func(context.Context) error {
			t.Error("work ran without a lease")
			return nil
		})
		if !errors.Is(err, ErrNoLease) {
			t.Errorf("Do() without a lease = %v, want ErrNoLease", err)
		}
	})
}

func TestTokenNeedsALease(t *testing.T) {
	p := leading(t)
	tok, err := p.Token()
	if err != nil || tok.Term != 2 || tok.Index != p.last {
		t.Errorf("Token() = %v, %v, want 2.%d", tok, err, p.last)
	}
	p.commitNew()
	if later, err := p.Token(); err != nil || !tok.Less(later) {
		t.Errorf("Token() after a commit = %v, %v, want more than %v", later, err, tok)
	}
	p.clock.Advance(usable)
	tok, err = p.Token()
	if nl, ok := errors.AsType[*NoLeaseError](err); !ok || nl.Status != core.Margin || nl.Term != 2 || nl.Leader != 1 || !tok.IsZero() {
		t.Errorf("Token() in the margin = %v, %v, want none, and why", tok, err)
	}
}

// lockContext sees whether it is asked with the lease locked.
type lockContext struct {
	context.Context
	lease  *Lease
	locked bool
}

func (c *lockContext) see() {
	if c.lease.mu.TryLock() {
		c.lease.mu.Unlock()
		return
	}
	c.locked = true
}

func (c *lockContext) Err() error            { c.see(); return c.Context.Err() }
func (c *lockContext) Done() <-chan struct{} { c.see(); return c.Context.Done() }
func (c *lockContext) Value(key any) any     { c.see(); return c.Context.Value(key) }

// A context is the embedder's code: it may ask the Lease whether it has ended.
func TestAContextIsNotAskedUnderTheLock(t *testing.T) {
	for name, use := range map[string]func(p *puppet, ctx context.Context){
		"StartReadIndex": func(p *puppet, ctx context.Context) { p.StartReadIndex(ctx, func(ReadResult, error) {}) },
		"Context":        func(p *puppet, ctx context.Context) { _, stop, _ := p.Context(ctx); stop() },
		"a lost lease":   func(p *puppet, ctx context.Context) { _, _, _ = p.Context(ctx); p.invalidate() },
	} {
		p := leading(t)
		inner, cancel := context.WithCancel(t.Context())
		ctx := &lockContext{Context: inner, lease: p.Lease}
		if use(p, ctx); ctx.locked {
			t.Errorf("%s: a method of the context was called with the lease locked", name)
		}
		cancel()
	}
}
