package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// A voter keeps its promise while the leader relies on it, even after all voters have forgotten
// their leader.
func TestV1PromiseOutlastsTheLease(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(500 * ms)
	s.isolate(1)
	s.wantStatus(1, core.Valid)
	if took := s.usurp(2, 2, 3); took > duration+10*ms {
		t.Errorf("node 2 was elected after %v, want at most %v: a promise must end", took, duration+10*ms)
	}
}

// A second probe that asks for less does not shorten what was promised.
func TestV1ShorterProbeDoesNotShortenThePromise(t *testing.T) {
	g := core.NewGuard(1, 1, time.Second, 0)
	g.Promise(1, 2, core.Probe{Sent: 10, Duration: time.Second}, core.ProcessID{}, 100)
	g.Promise(1, 2, core.Probe{Sent: 20, Duration: time.Millisecond}, core.ProcessID{}, 200)
	if last := core.Instant(100).Add(time.Second) - 1; !g.Bound(last) || g.Bound(last+1) {
		t.Errorf("Bound(%d), Bound(%d) = %v, %v, want true, false", last, last+1, g.Bound(last), g.Bound(last+1))
	}
}

// A probe that asks for more than MaxPromise gets no promise, and so no grant:
// the restart hold would not cover it.
func TestV1ProbeBeyondMaxPromiseGetsNone(t *testing.T) {
	s := begin(t, leasetest.Options{Configure: func(id uint64, cfg *leaderlease.Config) {
		if id != 1 {
			cfg.Duration, cfg.MaxPromise = 500*ms, 500*ms
		}
	}})
	s.Node(1).Campaign()
	s.Run(time.Second)
	s.wantStatus(1, core.Expired)
	for _, id := range []uint64{2, 3} {
		st := s.Node(id).Lease().Stats()
		if st.Promises != 0 || st.RefusedProbes == 0 {
			t.Errorf("node %d: Stats() = %d promises, %d refused probes, want 0 and some", id, st.Promises, st.RefusedProbes)
		}
	}
}

// A deposed leader's heartbeat that arrives late makes no promise, and does not
// change what the present leader is told.
func TestV1ProbeOfDeposedLeaderMakesNoPromise(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = to(3, raftpb.MsgHeartbeat)
	s.Run(250 * ms)
	s.isolate(1)
	s.Run(duration)
	s.Net.Hold = nil
	s.usurp(2, 2, 3)
	s.Run(200 * ms)
	s.Net.Heal()
	before := s.Node(3).Lease().Stats().RefusedProbes
	if n := s.Net.Release(from(1, raftpb.MsgHeartbeat)); n == 0 {
		t.Fatal("Release() = 0 heartbeats of node 1, want some")
	}
	s.Run(2 * ms)
	if got := s.Node(3).Lease().Stats().RefusedProbes; got == before {
		t.Errorf("RefusedProbes = %d after the late heartbeats, want more than %d", got, before)
	}
	if p := s.Node(3).Lease().Info().Promise; p.Leader != 2 {
		t.Errorf("Info().Promise.Leader = %d, want 2", p.Leader)
	}
}
