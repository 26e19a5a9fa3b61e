package leaderlease

import (
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

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
// many it has lost; nobody waits for it.
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
		if newest.Held != (p.mu.held != 0) {
			t.Errorf("newest event = %+v, want the present state, held: %v", newest, p.mu.held)
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
