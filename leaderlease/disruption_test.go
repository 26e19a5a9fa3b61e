package leaderlease

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// hookClock runs hook, once, after a reading was taken and before it is
// returned: what another core, or the hypervisor, does meanwhile.
type hookClock struct {
	handClock
	hook func()
}

func (c *hookClock) Now() core.Instant {
	now := c.handClock.Now()
	if hook := c.hook; hook != nil {
		c.hook = nil
		hook()
	}
	return now
}

// Info implements clock.Described: New need not measure it.
func (c *hookClock) Info() clock.Info { return clock.Info{Name: "hook", CountsSuspend: true, Cost: 1} }

// ahead lets the clock be disrupted and jump ahead by d.
func (c *hookClock) ahead(d time.Duration) {
	c.Advance(d)
	c.marker.Add(1)
}

// The clock jumps ahead between the reading and the look at its marker. The hold
// is measured from the clock as it is since: from the reading, which is an hour
// old, it would have ended already.
func TestDisruptionBetweenTwoReadings(t *testing.T) {
	c := &hookClock{}
	c.Advance(time.Hour)
	p := newPuppet(t, func(cfg *Config) { cfg.Clock = c })
	p.follow(2, 2)
	p.promiseTo(2)
	c.hook = func() { c.ahead(time.Hour) }
	for _, step := range []struct {
		after time.Duration
		in    bool
	}{{0, false}, {900*ms - 1, false}, {1, true}} {
		c.Advance(step.after)
		if got := p.Incoming(p.message(raftpb.MsgVote, 3, 1)); got != step.in {
			t.Errorf("Incoming(vote) = %t %v later, want %t: the longest promise is 900 ms", got, step.after, step.in)
		}
	}
}

// The same while New reads the clock: the restart hold is not over.
func TestDisruptionWithinNew(t *testing.T) {
	c := &hookClock{}
	c.Advance(time.Hour)
	c.hook = func() { c.ahead(time.Hour) }
	p := newPuppet(t, func(cfg *Config) {
		cfg.Clock = c
		s := bootstrapped(t, 1, 2, 3)
		if err := s.SetHardState(&raftpb.HardState{Term: new(uint64(2)), Commit: new(uint64(1))}); err != nil {
			t.Fatal(err)
		}
		cfg.Raft.Storage = s
	})
	if err := p.CanCampaign(); err == nil {
		t.Error("CanCampaign() = nil in the restart hold, want a refusal")
	}
}
