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
	{"a reign that follows at once", func(p *puppet) { p.win(3) }, core.NoOwnTermCommit, 1, 3},
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
				if n := len(p.mu.workers); n != 0 {
					t.Errorf("%d workers are left, want none", n)
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

// A sole voter's next reign may begin in the very Ready that ends the last, so
// the lease is valid throughout; what was begun under the old one ends all the
// same, since another node may have led in between.
func TestANewReignEndsOldWork(t *testing.T) {
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
			t.Errorf("Context() in the new reign = %v, want a live one", err)
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
		if n := len(p.mu.workers); n != 0 {
			t.Errorf("%d workers are left, want none", n)
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
