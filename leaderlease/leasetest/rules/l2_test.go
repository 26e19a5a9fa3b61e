package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// leaderOfTerm5 returns the leader's half of node 1, which leads term 5 since start, in the given
// configuration.
func leaderOfTerm5(start core.Instant, cs *raftpb.ConfState) *core.Lease {
	l := core.NewLease(core.Params{ID: 1, Duration: duration, MaxClockSkew: skew, TransferTimeout: election})
	l.SetVoters(core.Voters(cs))
	l.Lead(5, start)
	l.OwnTermCommitted()
	return l
}

// A grant counts only if it is a promise by a voter in the leader's term, to a probe sent in it.
func TestL2CountsOnlyPromisesOfThisTerm(t *testing.T) {
	const start, now = core.Instant(1000), core.Instant(2000)
	for _, tc := range []struct {
		name       string
		from, term uint64
		sent       core.Instant
		promised   time.Duration
		wantEnd    core.Instant
	}{
		{"a promise of this term", 2, 5, 1500, duration, 1500 + core.Instant(duration)},
		{"the first instant of the term", 2, 5, start, duration, start + core.Instant(duration)},
		{"sent before the term", 2, 5, start - 1, duration, 0},
		{"sent at this very instant", 2, 5, now, duration, now + core.Instant(duration)},
		{"sent in the future", 2, 5, now + 1, duration, 0},
		{"an earlier term", 2, 4, 1500, duration, 0},
		{"a later term", 2, 6, 1500, duration, 0},
		{"not a voter", 4, 5, 1500, duration, 0},
		{"less than was asked", 2, 5, 1500, 100 * ms, 1500 + core.Instant(100*ms)},
		{"more than was asked", 2, 5, 1500, time.Hour, 1500 + core.Instant(duration)},
		{"nothing", 2, 5, 1500, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := leaderOfTerm5(start, &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}})
			l.Count(tc.from, tc.term, core.Grant{Sent: tc.sent, Duration: tc.promised}, now)
			if got := l.View(now).End; got != tc.wantEnd {
				t.Errorf("View().End = %d, want %d", got, tc.wantEnd)
			}
		})
	}
}

// Answers that take long renew the lease for as little as the voters' promises
// have left, which began when the heartbeats left.
func TestL2LeaseRunsFromTheSendTime(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Hold = to(1, raftpb.MsgHeartbeatResp)
	s.Run(100 * ms)
	s.Net.Cut(1, 2)
	s.Net.Cut(1, 3)
	s.Run(600 * ms)
	s.Net.Release(nil)
	s.Run(2 * ms)
	s.isolate(1)
	s.wantStatus(1, core.Valid)
	if end := s.Node(1).Lease().Info().End; end > duration-600*ms {
		t.Errorf("Info().End = %v, want at most %v", end, duration-600*ms)
	}
	s.usurp(2, 2, 3)
}

// A grant that arrives once more, or after a newer one, changes nothing.
func TestL2LateAndDuplicateGrants(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Net.Plan = func(m *raftpb.Message) []time.Duration {
		if m.GetType() == raftpb.MsgHeartbeatResp {
			return []time.Duration{ms, 420 * ms, 50 * ms}
		}
		return []time.Duration{ms}
	}
	s.Run(2 * time.Second)
	for range 100 {
		s.Run(10 * ms)
		// The newest grant is at most a heartbeat and a round trip old.
		if end := s.Node(1).Lease().Info().End; end < duration-103*ms {
			t.Fatalf("%v: Info().End = %v, want at least %v", s.Now(), end, duration-103*ms)
		}
	}
	s.isolate(1)
	s.usurp(2, 2, 3)
}
