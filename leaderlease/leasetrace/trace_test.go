package leasetrace_test

import (
	"testing"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

func TestATraceKeepsTheNewestEvents(t *testing.T) {
	tr := leasetrace.New(4)
	var got [8]leasetrace.Event
	if n := tr.Since(0, got[:]); n != 0 {
		t.Errorf("an empty trace has %d events", n)
	}
	for i := range uint64(3) {
		tr.TraceEvent(leasetrace.Event{Term: i + 1})
	}
	for _, tc := range []struct{ since, first, n uint64 }{{0, 1, 3}, {2, 3, 1}, {3, 0, 0}, {9, 0, 0}} {
		if n := tr.Since(tc.since, got[:]); n != int(tc.n) || n > 0 && (got[0].Seq != tc.first || got[0].Term != tc.first) {
			t.Errorf("Since(%d) = %d events from %d, want %d from %d", tc.since, n, got[0].Seq, tc.n, tc.first)
		}
	}
	for i := range uint64(5) {
		tr.TraceEvent(leasetrace.Event{Term: i + 4})
	}
	if n := tr.Since(1, got[:3]); n != 3 || got[0].Term != 5 || got[2].Seq != 7 {
		t.Errorf("Since(1) = %d events, %v to %v, want the 3 that are kept from the 5th on", n, got[0].Seq, got[2].Seq)
	}
	if n := tr.Since(7, got[:]); n != 1 || got[0].Seq != 8 {
		t.Errorf("Since(7) = %d events, want the 8th", n)
	}
}

// The lease of a sole voter needs no renewal, so its view may be older than all events that
// the trace has room for. A reader that begins then must still see it.
func TestATraceKeepsTheNewestView(t *testing.T) {
	tr := leasetrace.New(4)
	var got [8]leasetrace.Event
	tr.TraceEvent(leasetrace.Event{Kind: leasetrace.KindRaft})
	tr.TraceEvent(leasetrace.Event{Kind: leasetrace.KindView, Instant: core.Forever})
	for range 9 {
		tr.TraceEvent(leasetrace.Event{Kind: leasetrace.KindProbe})
	}
	if n := tr.Since(0, got[:]); n != 5 || got[0].Seq != 2 || got[0].Instant != core.Forever || got[1].Seq != 8 {
		t.Errorf("Since(0) = %d events, %+v first, want the view and the 4 newest", n, got[0])
	}
	if n := tr.Since(0, got[:1]); n != 1 || got[0].Seq != 2 {
		t.Errorf("Since(0) with room for one = %d events, %+v, want the view", n, got[0])
	}
	if n := tr.Since(0, nil); n != 0 {
		t.Errorf("Since(0) without room = %d", n)
	}
	if n := tr.Since(2, got[:]); n != 4 || got[0].Seq != 8 {
		t.Errorf("Since(2) = %d events, %+v first, want the 4 newest", n, got[0])
	}
}

// Every kind has a name of its own, by which it is known on disk.
func TestKindsHaveNames(t *testing.T) {
	seen := map[string]leasetrace.Kind{leasetrace.Kind(leasetrace.NumKinds).String(): leasetrace.Kind(leasetrace.NumKinds)}
	for k := range leasetrace.Kind(leasetrace.NumKinds) {
		name := k.String()
		if other, known := seen[name]; known || name == "" {
			t.Errorf("kinds %d and %d are both %q", other, k, name)
		}
		seen[name] = k
	}
}
