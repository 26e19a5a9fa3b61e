package leaderlease

import (
	"math"
	"testing"
	"time"

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

// A voter that owes nobody anything stays free if its clock cannot be read now and
// then: time passes as ever.
func TestAClockThatFailsBindsNobody(t *testing.T) {
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
