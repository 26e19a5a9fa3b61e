package leaderlease

import (
	"testing"

	"github.com/leaderlease/go/leaderlease/core"
)

// outrun is a clock whose reader is interrupted, once, between the reading and
// what it does with it.
type outrun struct {
	*handClock
	meanwhile func()
}

func (c *outrun) Now() core.Instant {
	now := c.handClock.Now()
	if f := c.meanwhile; f != nil {
		c.meanwhile = nil
		f()
	}
	return now
}

// A view that is newer than the reader's clock reading says nothing against the
// clock.
func TestReadersOutrunByARenewal(t *testing.T) {
	clock := &outrun{}
	p := newPuppet(t, func(c *Config) {
		clock.handClock, _ = c.Clock.(*handClock)
		c.Clock = clock
	})
	p.clock = clock.handClock
	p.lead(2)
	p.renew()
	renewal := func() {
		p.clock.Advance(ms)
		p.renew()
	}

	clock.meanwhile = renewal
	if _, s := p.TryRead(); s != core.Valid {
		t.Errorf("TryRead() outrun by a renewal = %v, want valid", s)
	}
	clock.meanwhile = renewal
	if r, err := p.Read(t.Context()); err != nil || r.Path != PathLease {
		t.Errorf("Read() outrun by a renewal = %+v, %v, want path lease", r, err)
	}
	if n := p.Stats().Refused[core.ClockFault]; n != 0 {
		t.Errorf("Stats().Refused[clock] = %d, want 0", n)
	}
}
