package leaderlease

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetrace"
)

func TestATraceIsOfOneLease(t *testing.T) {
	tr := leasetrace.New(10)
	if _, begun := tr.Start(); begun {
		t.Error("a trace has begun before its Lease")
	}
	with := func(cfg *Config) { cfg.Tracer = tr }
	p := leading(t, with)
	if s, begun := tr.Start(); !begun || s.ID != p.id() || s.Duration != p.cfg.Duration || s.Incarnation != p.nonce.incarnation() {
		t.Errorf("Start() = %+v, %v", s, begun)
	}
	cfg := p.cfg
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "start Config.Tracer: leasetrace: the Trace is another Lease's") {
		t.Errorf("New with a trace that is in use = %v", err)
	}
}

// A trace that was not made by leasetrace.New is refused: it has no room for an event.
func TestATraceHasRoom(t *testing.T) {
	cfg := leading(t).cfg
	for _, trace := range []*leasetrace.Trace{{}, nil} { // a nil *Trace is not the nil Tracer
		cfg.Tracer = trace
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "make it with New") {
			t.Errorf("New with %v = %v, want an error that says what to do", trace, err)
		}
	}
}

// A vote for this node leaves an event, whether it may count or not.
func TestATraceHasVotesThatComeIn(t *testing.T) {
	tr := leasetrace.New(100)
	p := leading(t, func(cfg *Config) { cfg.Tracer = tr })
	let := comesIn(raftpb.MsgVoteResp, false)(p)
	var got [100]leasetrace.Event
	events := got[:tr.Since(0, got[:])]
	if e := events[len(events)-1]; e.Kind != leasetrace.KindVoteIn || e.OK != let || e.Peer != 3 {
		t.Errorf("the newest event is %+v, want a vote from 3 that may count: %v", e, let)
	}
}

// A round allocates what it does without a trace, and a reader that looks at its
// lease leaves none.
func TestATraceAllocatesNothing(t *testing.T) {
	rounds := func(tr Tracer) float64 {
		p := leading(t, func(cfg *Config) { cfg.Tracer = tr })
		return testing.AllocsPerRun(100, func() {
			p.clock.Advance(ms)
			p.Incoming(p.granted(p.heartbeat()))
			p.Ready(raft.Ready{HardState: p.hard(p.commit.Load())})
		})
	}
	without, with := rounds(nil), rounds(leasetrace.New(16))
	if with > without {
		t.Errorf("a round allocates %v times with a trace, and %v times without", with, without)
	}
	tr := leasetrace.New(1000)
	p := leading(t, func(cfg *Config) { cfg.Tracer = tr })
	var got [1000]leasetrace.Event
	before := tr.Since(0, got[:])
	for range 10 {
		if _, s := p.TryRead(); s != StatusValid {
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
