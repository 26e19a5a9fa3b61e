package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// The leader's clock is as slow as the configured bound allows, so it measures the promised time as
// longer than the voters do. The margin covers the difference.
func TestClockMarginCoversTheDrift(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.Node(1).Clock.SetRate(0.82)
	s.lead(1)
	s.Run(500 * ms)
	s.isolate(1)
	s.wantStatus(1, core.Valid)
	s.electEarly(2, 2, 3)
}

// A leader's clock that goes back would make its lease last longer than the
// promises. It is noticed by the next read and costs the lease, until a quorum
// has answered a probe that was sent later.
func TestClockOfTheLeaderGoesBack(t *testing.T) {
	s := begin(t, leasetest.Options{})
	n := s.lead(1)
	n.Clock.Step(-500 * ms)
	s.wantStatus(1, core.ClockFault)
	s.isolate(1)
	s.Run(200 * ms)
	s.wantStatus(1, core.ClockFault)
	s.electEarly(2, 2, 3)
}

// One bad reading costs the lease until the next round. Answers under way to earlier probes do not
// bring it back.
func TestClockThatWentBackIsUsedAgain(t *testing.T) {
	for _, back := range []time.Duration{ms, 500 * ms, time.Hour} {
		s := begin(t, leasetest.Options{})
		n := s.lead(1)
		s.Net.Hold = to(1, raftpb.MsgHeartbeatResp)
		s.Run(150 * ms)
		n.Lease().Info() // or a small step is not noticed
		n.Clock.Step(-back)
		n.Lease().Info()
		s.wantStatus(1, core.ClockFault)
		s.Net.Hold = nil
		late := s.Net.Held()
		if len(late) == 0 {
			t.Fatal("no grant is held")
		}
		for _, m := range late {
			s.hand(m)
		}
		s.wantStatus(1, core.ClockFault)
		s.Run(150 * ms)
		s.wantLeader(1, 1)
		s.isolate(1)
		s.electEarly(2, 2, 3)
	}
}

// A voter's clock that goes back would make its promise endless. It ends within
// the longest promise.
func TestClockOfAVoterGoesBack(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.isolate(1)
	for _, id := range ids(2, 3) {
		s.Node(id).Clock.Step(-time.Hour)
	}
	if took := s.electEarly(2, 2, 3); took < duration-10*ms {
		t.Errorf("node 2 was elected after %v, want about %v", took, duration)
	}
}

// There is no lease while the clock cannot be read. When the clock is back, only later probes count,
// since the clock may have stepped meanwhile.
func TestClockFails(t *testing.T) {
	s := begin(t, leasetest.Options{})
	n := s.lead(1)
	n.Clock.SetFailed(true)
	s.wantStatus(1, core.ClockFault)
	n.Lease().Info() // the raft side has a bad reading, readers have good ones
	n.Clock.SetFailed(false)
	s.wantStatus(1, core.ClockFault)
	n.Clock.SetFailed(true)
	s.Run(200 * ms)
	s.wantStatus(1, core.ClockFault)
	s.Net.Hold = to(1, raftpb.MsgHeartbeatResp)
	n.Clock.SetFailed(false)
	s.Run(300 * ms)
	s.wantStatus(1, core.ClockFault)
	s.Net.Hold = nil
	s.Run(200 * ms)
	s.wantLeader(1, 1)
	s.isolate(1)
	s.electEarly(2, 2, 3)
}

// A voter's clock is disrupted and jumps ahead, so its promise seems to have ended. The voter must
// still keep it, since the leader relies on it.
func TestClockOfAVoterJumpsAhead(t *testing.T) {
	for _, ahead := range []time.Duration{0, 500 * ms, 900 * ms, time.Hour} {
		s := begin(t, leasetest.Options{})
		s.lead(1)
		s.isolate(1)
		for _, id := range ids(2, 3) {
			s.Node(id).Clock.Step(ahead)
			s.Node(id).Clock.Disrupt()
		}
		if took := s.electEarly(2, 2, 3); took < duration-10*ms || took > duration+50*ms {
			t.Errorf("node 2 was elected after %v with clocks %v ahead, want about %v", took, ahead, duration)
		}
	}
}

// The same in the restart hold.
func TestClockJumpsAheadInTheRestartHold(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.isolate(1)
	for _, id := range ids(2, 3) {
		s.Node(id).Crash(0)
		s.Node(id).Restart()
		s.Node(id).Clock.Step(time.Hour)
		s.Node(id).Clock.Disrupt()
	}
	s.electEarly(2, 2, 3)
}

// The machine and its clock were suspended, and only the disruption marker shows it. The lease is
// void from the first reading on.
func TestClockDisruptionVoidsTheLease(t *testing.T) {
	s := begin(t, leasetest.Options{})
	n := s.lead(1)
	s.Run(50 * ms)
	s.isolate(1)
	n.Suspend(true)
	s.Run(700 * ms)
	n.Clock.Start()
	n.Clock.Disrupt()
	s.wantStatus(1, core.ClockFault)
	n.Wake(true)
	s.Run(200 * ms)
	s.wantStatus(1, core.ClockFault)
	s.electEarly(2, 2, 3)
}

// Both voters' clocks run faster than the bound allows, so their promises end
// too early. The leader sees that from their readings and gives the lease up.
func TestClockRateWatchGivesUp(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.Node(2).Clock.SetRate(1.4)
	s.Node(3).Clock.SetRate(1.4)
	s.Node(1).Campaign()
	s.Run(3 * time.Second)
	s.wantStatus(1, core.ClockFault)
	for _, p := range s.Node(1).Lease().Info().Peers {
		if !p.ClockSuspect {
			t.Errorf("Info().Peers: node %d is not suspect, want suspect", p.ID)
		}
	}
	s.isolate(1)
	s.electEarly(2, 2, 3)
}

// One voter's clock is too fast. The other voter renews the lease; the fast one alone does not.
func TestClockFastVoterDoesNotCount(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.Node(2).Clock.SetRate(1.4)
	s.lead(1)
	s.Run(3 * time.Second)
	s.wantStatus(1, core.Valid)
	s.Net.Split(ids(1), ids(3))
	s.Run(duration)
	s.wantStatus(1, core.Expired)
}

// The clock of a restarted process begins at the same reading as that of its predecessor. Leaders
// must not take the two for one clock that has lost time.
func TestClockOfARestartedVoterIsTrusted(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Split(ids(1), ids(3))
	s.Run(3 * time.Second)
	s.Node(2).Crash(0)
	s.Node(2).Restart()
	s.Run(500 * ms)
	for _, p := range s.Node(1).Lease().Info().Peers {
		if p.ClockSuspect {
			t.Errorf("Info().Peers: node %d is suspect after a restart, want trusted", p.ID)
		}
	}
	s.wantStatus(1, core.Valid)
}
