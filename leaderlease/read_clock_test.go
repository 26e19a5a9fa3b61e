package leaderlease

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// A machine that was stopped and says so loses the lease at once, on every way
// to it, although its clock saw nothing.
func TestDisruptionIsSeenByEveryReader(t *testing.T) {
	for name, read := range map[string]func(*puppet) (served bool){
		"TryRead": func(p *puppet) bool { _, s := p.TryRead(); return s == core.Valid },
		"Token":   func(p *puppet) bool { _, err := p.Token(); return err == nil },
		"StartRead": func(p *puppet) bool {
			o := p.startRead()
			return o.calls > 0 && o.err == nil
		},
		"Context": func(p *puppet) bool {
			_, stop, err := p.Context(t.Context())
			if err == nil {
				stop()
			}
			return err == nil
		},
		"Info": func(p *puppet) bool { s := p.Info(); return s.Valid() },
		"Watch": func(p *puppet) bool {
			events, stop := p.Watch()
			defer stop()
			e := <-events
			return e.Held || e.Status == core.Valid
		},
		"a forwarded read": func(p *puppet) bool {
			return !p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := leading(t, func(c *Config) { c.Send = func([]*raftpb.Message) {} })
			p.clock.marker.Add(1)
			if read(p) {
				t.Error("served after a disruption, want a refusal")
			}
			p.Tick()
			p.clock.Advance(ms) // a probe of the same instant may be from before
			p.renew()
			if !read(p) {
				t.Error("refused after a renewal, want it served again")
			}
			p.Close()
		})
	}
}

// A clock that cannot be read, or that went back, is no clock to lease by, on
// any way to the lease.
func TestClockFaultIsSeenByEveryReader(t *testing.T) {
	faults := map[string]func(*puppet){
		"fails":          func(p *puppet) { p.clock.reading.Store(0) },
		"goes backwards": func(p *puppet) { p.clock.Advance(-ms) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			// The view is as old as its renewal, so the step back is seen by
			// the raft side only. That is also where a read goes that has to
			// wait for the state machine.
			prepare := func() *puppet {
				p := leading(t)
				p.clock.Advance(100 * ms)
				p.commitNew()
				fault(p)
				return p
			}
			p := prepare()
			o := p.startRead()
			if p.Applied(p.last); o.calls > 0 && o.err == nil {
				t.Errorf("StartRead() = %+v with a clock that %s, want no lease read", o.read, name)
			}
			p.Close()
			p = prepare()
			if _, stop, err := p.Context(t.Context()); err == nil {
				stop()
				t.Errorf("Context() = nil with a clock that %s, want a refusal", name)
			}
			p.Close()
			p = prepare()
			if s := p.Info(); s.Status != core.ClockFault {
				t.Errorf("Info().Lease = %v with a clock that %s, want %v", s.Status, name, core.ClockFault)
			}
			p = prepare()
			events, stop := p.Watch()
			if e := <-events; e.Held || e.Status != core.ClockFault {
				t.Errorf("Watch() = %+v with a clock that %s, want it lost to %v", e, name, core.ClockFault)
			}
			stop()
			p = prepare()
			p.Tick()
			p.want(core.ClockFault)
			if n := p.Stats().ClockFaults; n == 0 {
				t.Error("Stats().ClockFaults = 0, want the fault counted")
			}
		})
	}
}
