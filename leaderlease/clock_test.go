package leaderlease

import (
	"math"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// tryRenew is renew for a leader that may send no probe.
func (p *puppet) tryRenew() {
	p.t.Helper()
	m := p.heartbeat()
	if _, err := probeOf(m); err == nil {
		p.Incoming(p.granted(m))
	}
}

// One reading near the end of int64, and good ones again: sums with it must not
// become a lease without an end.
func TestAClockSpikeMakesNoLeaseForEver(t *testing.T) {
	for i, spike := range []int64{math.MaxInt64 - 10, math.MaxInt64 / 2, math.MaxInt64 / 2} {
		p := leading(t)
		good := p.clock.reading.Load()
		for range i + 1 {
			p.clock.reading.Store(spike)
			p.heartbeat()
			p.clock.reading.Store(good + int64(ms))
			p.Tick()
			p.want(core.ClockFault)
			p.clock.Advance(50 * ms)
			p.tryRenew()
		}
		p.clock.Advance(100 * time.Hour)
		if _, s := p.TryRead(); s == core.Valid {
			t.Errorf("TryRead() = %v 100 h after the last grant and a reading of %d, want no lease", s, spike)
		}
	}
}

// A clock that goes back again and again is not used any more in that term.
func TestAClockThatKeepsSteppingIsDistrusted(t *testing.T) {
	p := leading(t)
	for steps := 1; steps <= 5; steps++ {
		p.clock.Advance(500 * ms)
		p.Tick()
		p.clock.Advance(-400 * ms) // send instants need no shift for it
		p.Tick()
		p.clock.Advance(ms)
		p.tryRenew()
		want := core.Valid
		if steps > 3 {
			want = core.ClockFault
		}
		if _, s := p.TryRead(); s != want {
			t.Errorf("TryRead() = %v after %d steps back, want %v", s, steps, want)
		}
	}
}

// A voter without a promise stays free if its clock cannot be read now and
// then: time passes as ever.
func TestAClockThatFailsBindsNoNode(t *testing.T) {
	p := newPuppet(t)
	p.follow(2, 0)
	for range 100 {
		p.clock.Advance(800 * ms)
		good := p.clock.reading.Swap(0)
		p.Tick()
		p.clock.reading.Store(good)
		p.Tick()
		if err := p.CanCampaign(); err != nil {
			t.Fatalf("CanCampaign() after a reading that failed = %v, want nil", err)
		}
	}
}

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
