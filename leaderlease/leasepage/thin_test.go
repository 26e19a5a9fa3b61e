package leasepage

import (
	"slices"
	"testing"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// thin keeps the picture of a leader that serves reads by rounds: its leases, promises and flags.
func TestThinKeepsThePicture(t *testing.T) {
	busy, voter := newTraced(1, 0, 0, 10), newTraced(2, 0, 0, 10)
	busy.leads(50, 2)
	for at := 100; at < 3100; at++ {
		busy.renews(at, 2, voter)
	}
	busy.record(3200, leasetrace.Event{Kind: leasetrace.KindView, Term: 2, Status: core.DiskStalled, Reading: busy.clock(3200)})
	all := processes(busy, voter)
	whole := draw(all, names)
	total := len(all[0].Events)
	for i := range all {
		all[i].Events = thin(all[i].Events)
	}
	if n := len(all[0].Events); n > total/8 {
		t.Errorf("%d of %d events are left, want few", n, total)
	}
	thinned := draw(all, names)
	if got, want := thinned.Lanes[0].Leases, whole.Lanes[0].Leases; !slices.Equal(got, want) {
		t.Errorf("the leases are %+v, want %+v", got, want)
	}
	if got, want := thinned.Lanes[1].Promises, whole.Lanes[1].Promises; !slices.Equal(got, want) {
		t.Errorf("the promises are %+v, want %+v", got, want)
	}
	if got, want := thinned.Lanes[0].Flags, whole.Lanes[0].Flags; !slices.Equal(got, want) {
		t.Errorf("the flags are %+v, want %+v", got, want)
	}
}

// The events that are kept of a process are bounded.
func TestSinceIsBounded(t *testing.T) {
	events := make([]leasetrace.Event, 3*maxEvents)
	if n := len(eventsSince(events, 0)); n != maxEvents {
		t.Errorf("%d events are kept, want %d", n, maxEvents)
	}
	events = []leasetrace.Event{{Seq: 1, At: 5}, {Seq: 2, At: 6}, {Seq: 3, At: 7}}
	if got := eventsSince(events, 6); len(got) != 2 || got[0].Seq != 2 {
		t.Errorf("since 6 there are %v, want two", got)
	}
	if got := eventsSince(events, 100); len(got) != 1 || got[0].Seq != 3 {
		t.Errorf("since 100 there are %v, want the last", got)
	}
}

// The newest view is kept, however old it is: the lease of a sole voter has no later one.
func TestSinceKeepsTheNewestView(t *testing.T) {
	events := soleVoter().Events
	for at := range 5 {
		events = append(events, leasetrace.Event{Seq: uint64(4 + at), At: leaderlease.Instant(1000+at) * msec, Kind: leasetrace.KindProbe})
	}
	for range 2 {
		events = eventsSince(events, 1003*msec)
		if len(events) != 3 || events[0].Kind != leasetrace.KindView || events[1].Seq != 7 || events[2].Seq != 8 {
			t.Errorf("since 1003 ms there are %+v, want the view and two probes", events)
		}
	}
}
