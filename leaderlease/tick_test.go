package leaderlease

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// A follower that its leader binds with each heartbeat ticks, though it is not known
// which configuration counts: as long as the leader lives the promise does not end.
func TestAFollowerTicksWhileTheConfigurationIsNotKnown(t *testing.T) {
	tests := map[string]struct {
		voters []uint64
		amend  func(*puppet)
	}{
		"a change was not told":               {[]uint64{1, 2, 3}, func(p *puppet) { p.commitChanges(1) }},
		"the change that ended being alone":   {[]uint64{1}, func(p *puppet) { p.commitChanges(1) }},
		"a misuse":                            {[]uint64{1, 2, 3}, func(p *puppet) { p.ApplyConfState(voters(1)) }},
		"a misuse of a voter that was alone":  {[]uint64{1}, func(p *puppet) { p.ApplyConfState(voters(1, 2)) }},
		"a state machine ahead of raft's log": {[]uint64{1, 2, 3}, func(p *puppet) { p.Applied(p.last + 1) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPuppet(t, func(c *Config) { c.Raft.Storage = bootstrapped(t, tc.voters...) })
			p.follow(2, 2)
			tc.amend(p)
			for range 100 {
				p.promiseTo(2)
				p.clock.Advance(p.cfg.TickInterval)
				if !p.Tick() {
					t.Fatal("Tick() of a bound follower = false, want true")
				}
			}
			// What raft may do by itself then is held back in Ready.
			p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgHeartbeatResp, 1, 2)}})
			alone := raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StatePreCandidate}}
			if !p.WouldBlock(alone) {
				t.Error("WouldBlock() = false for a pre-candidate that may be alone, want true")
			}
		})
	}
}

// A node that is known to be the only voter does not tick while it is bound.
func TestASoleVoterDoesNotTickWhileBound(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.Raft.Storage = bootstrapped(t, 1) })
	p.follow(2, 2)
	p.promiseTo(2)
	if p.Tick() {
		t.Error("Tick() = true, want false")
	}
	if p.clock.Advance(900 * ms); !p.Tick() {
		t.Error("Tick() = false when the promise has ended, want true")
	}
	p.want(core.NotLeader)
}

// Ticks at another interval than TickInterval are warned of once, with both figures.
func TestTicksAtAnotherIntervalAreWarnedOf(t *testing.T) {
	every := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	tests := []struct {
		name string
		gap  func(i int) time.Duration
		want string
	}{
		{"as configured", every(100 * ms), ""},
		{"twice as long, on a busy machine", every(200 * ms), ""},
		{"TickInterval is ten times too long", every(10 * ms), "tick_interval=100ms measured=10ms"},
		{"TickInterval is ten times too short", every(time.Second), "tick_interval=100ms measured=1s"},
		{"one long pause", func(i int) time.Duration {
			if i == 150 {
				return time.Hour
			}
			return 100 * ms
		}, ""},
		{"a pause that the loop makes up for", func(i int) time.Duration {
			switch {
			case i == 150:
				return 50 * time.Second
			case i > 150 && i < 650:
				return 0
			default:
				return 100 * ms
			}
		}, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var log strings.Builder
			p := newPuppet(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			for i := range 10 * paceTicks {
				p.clock.Advance(tc.gap(i))
				p.Tick()
			}
			got := p.logged(&log)
			if tc.want == "" && got != "" || strings.Count(got, "level=WARN") > 1 || !strings.Contains(got, tc.want) {
				t.Errorf("log = %q, want one warning with %q, or none", got, tc.want)
			}
		})
	}
}

// A clock that fails or goes back measures nothing.
func TestAClockThatGoesBackMeasuresNoTicks(t *testing.T) {
	var log strings.Builder
	p := newPuppet(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for i := range 10 * paceTicks {
		if i%50 == 49 {
			p.clock.Advance(-10 * time.Second)
		}
		p.clock.Advance(ms)
		p.Tick()
	}
	if got := p.logged(&log); strings.Contains(got, "TickInterval") {
		t.Errorf("log = %q, want no word about ticks", got)
	}
}
