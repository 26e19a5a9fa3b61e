package leaderlease

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/leaderlease/go/leaderlease/core"
)

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
