package leaderlease

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// A reader goes on where it is, and sees by the numbers what it has missed.
func TestATraceKeepsTheNewestEvents(t *testing.T) {
	tr := NewTrace(4)
	var got [8]TraceEvent
	if n := tr.Since(0, got[:]); n != 0 {
		t.Errorf("an empty trace has %d events", n)
	}
	for i := range uint64(3) {
		tr.add(&TraceEvent{Term: i + 1})
	}
	for _, tc := range []struct{ since, first, n uint64 }{{0, 1, 3}, {2, 3, 1}, {3, 0, 0}, {9, 0, 0}} {
		if n := tr.Since(tc.since, got[:]); n != int(tc.n) || n > 0 && (got[0].Seq != tc.first || got[0].Term != tc.first) {
			t.Errorf("Since(%d) = %d events from %d, want %d from %d", tc.since, n, got[0].Seq, tc.n, tc.first)
		}
	}
	for i := range uint64(5) {
		tr.add(&TraceEvent{Term: i + 4})
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
	tr := NewTrace(4)
	var got [8]TraceEvent
	tr.add(&TraceEvent{Kind: TraceRaft})
	tr.add(&TraceEvent{Kind: TraceView, Instant: core.Forever})
	for range 9 {
		tr.add(&TraceEvent{Kind: TraceProbe})
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

func TestATraceIsOfOneLease(t *testing.T) {
	tr := NewTrace(10)
	if _, begun := tr.Start(); begun {
		t.Error("a trace has begun before its Lease")
	}
	with := func(cfg *Config) { cfg.Trace = tr }
	p := leading(t, with)
	if s, begun := tr.Start(); !begun || s.ID != p.id() || s.Duration != p.cfg.Duration || s.Incarnation != p.nonce.incarnation() {
		t.Errorf("Start() = %+v, %v", s, begun)
	}
	cfg := p.cfg
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "Config.Trace is another Lease's") {
		t.Errorf("New with a trace that is in use = %v", err)
	}
}

// A trace that was not made by NewTrace is refused: it has no room for an event.
func TestATraceHasRoom(t *testing.T) {
	cfg := leading(t).cfg
	cfg.Trace = new(Trace)
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "make it with NewTrace") {
		t.Errorf("New with the zero Trace = %v", err)
	}
}

// A vote for this node leaves an event, whether it may count or not.
func TestATraceHasVotesThatComeIn(t *testing.T) {
	tr := NewTrace(100)
	p := leading(t, func(cfg *Config) { cfg.Trace = tr })
	let := comesIn(raftpb.MsgVoteResp, false)(p)
	var got [100]TraceEvent
	events := got[:tr.Since(0, got[:])]
	if e := events[len(events)-1]; e.Kind != TraceVoteIn || e.OK != let || e.Peer != 3 {
		t.Errorf("the newest event is %+v, want a vote from 3 that may count: %v", e, let)
	}
}

// Every kind has a name of its own, by which it is known on disk.
func TestTraceKindsHaveNames(t *testing.T) {
	seen := map[string]TraceKind{TraceKind(NumTraceKinds).String(): TraceKind(NumTraceKinds)}
	for k := range TraceKind(NumTraceKinds) {
		name := k.String()
		if other, known := seen[name]; known || name == "" {
			t.Errorf("kinds %d and %d are both %q", other, k, name)
		}
		seen[name] = k
	}
}

// A round allocates what it does without a trace, and a reader that looks at its
// lease leaves none.
func TestATraceAllocatesNothing(t *testing.T) {
	rounds := func(tr *Trace) float64 {
		p := leading(t, func(cfg *Config) { cfg.Trace = tr })
		return testing.AllocsPerRun(100, func() {
			p.clock.Advance(ms)
			p.Incoming(p.granted(p.heartbeat()))
			p.Ready(raft.Ready{HardState: p.hard(p.commit.Load())})
		})
	}
	without, with := rounds(nil), rounds(NewTrace(16))
	if with > without {
		t.Errorf("a round allocates %v times with a trace, and %v times without", with, without)
	}
	tr := NewTrace(1000)
	p := leading(t, func(cfg *Config) { cfg.Trace = tr })
	var got [1000]TraceEvent
	before := tr.Since(0, got[:])
	for range 10 {
		if _, s := p.TryRead(); s != Valid {
			t.Fatal(errors.New(s.String()))
		}
		if _, err := p.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := tr.Since(0, got[:]); n != before {
		t.Errorf("reads have left %d events", n-before)
	}
}
