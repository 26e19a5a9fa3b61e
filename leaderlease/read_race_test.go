package leaderlease

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Everything at once, for the race detector: readers of each kind, while the
// raft loop renews, loses, regains and finally closes the lease. What readers
// are served must be applied, and must never go back.
func TestReadersRaceTheRaftLoop(t *testing.T) {
	p := leading(t)
	r := &racers{t: t, p: p}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(r.tryReads)
		wg.Go(r.readInTime)
	}
	wg.Go(r.startAndAbandon)

	for i := range 400 {
		p.clock.Advance(10 * ms)
		p.renew()
		p.Tick()
		p.commitNew()
		p.Applied(p.last)
		if rctx := p.asked(); rctx != nil {
			p.answer(rctx, p.last)
		}
		switch i % 20 {
		case 5:
			p.invalidate()
		case 10:
			p.follow(p.term+1, 2)
			p.lead(p.term + 1)
		case 15:
			p.clock.Advance(time.Second)
		}
	}
	p.Close()
	wg.Wait()
	r.pending.Wait()
	t.Logf("served: %d TryRead, %d Read; %d StartRead answered", r.tried.Load(), r.read.Load(), r.started.Load())
}

// racers read until the lease is closed.
type racers struct {
	t                    *testing.T
	p                    *puppet
	tried, read, started atomic.Uint64
	pending              sync.WaitGroup // each StartRead ends, and once
}

func (r *racers) closed() bool {
	_, s := r.p.TryRead()
	return s == core.Closed
}

func (r *racers) tryReads() {
	for newest := uint64(0); !r.closed(); {
		index, s := r.p.TryRead()
		if s != core.Valid {
			continue
		}
		if index < newest {
			r.t.Errorf("TryRead() = %d after %d, want it never to go back", index, newest)
		}
		newest = index
		r.tried.Add(1)
	}
}

func (r *racers) readInTime() {
	for newest := uint64(0); !r.closed(); {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Millisecond)
		got, err := r.p.Read(ctx)
		cancel()
		switch {
		case err == nil && (got.Index < newest || got.Index > r.p.Info().Applied):
			r.t.Errorf("Read() = %+v after index %d, applied %d", got, newest, r.p.Info().Applied)
		case err == nil:
			newest = got.Index
			r.read.Add(1)
		case !errors.Is(err, ErrNoLease) && !errors.Is(err, context.DeadlineExceeded):
			r.t.Errorf("Read() = %v, want ErrNoLease or the context's error", err)
		}
	}
}

// startAndAbandon ends half of its reads early, and asks for all else there is.
func (r *racers) startAndAbandon() {
	done := func(ReadResult, error) { r.started.Add(1); r.pending.Done() }
	for !r.closed() {
		ctx, cancel := context.WithCancel(r.t.Context())
		go cancel()
		r.pending.Add(2)
		r.p.StartRead(ctx, done)
		r.p.StartReadIndex(context.Background(), done)
		if _, stop, err := r.p.Context(r.t.Context()); err == nil {
			stop()
		}
		_, _ = r.p.Token()
		events, stop := r.p.Watch()
		<-events
		stop()
		r.p.Stats()
	}
}

// The commit index is read after the clock and the view have been checked, on
// every way to the lease. A reader that has it from before may have taken it
// while another node led: the term of the lease that then serves began later,
// with entries that the reader knows nothing of.
func TestCommitIndexIsReadAfterTheChecks(t *testing.T) {
	for name, read := range map[string]func(*puppet) (index uint64){
		"TryRead":   func(p *puppet) uint64 { index, _ := p.TryRead(); return index },
		"StartRead": func(p *puppet) uint64 { return p.startRead().read.Index },
		"Token":     func(p *puppet) uint64 { token, _ := p.Token(); return token.Index },
		"a forwarded read": func(p *puppet) (index uint64) {
			p.cfg.Send = func(msgs []*raftpb.Message) { index = msgs[0].GetIndex() }
			p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1))
			return index
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &hookClock{}
			c.Advance(time.Hour)
			p := newPuppet(t, func(cfg *Config) { cfg.Clock = c })
			p.follow(2, 2)
			c.hook = func() {
				p.last = 7 // what the leader of term 2 has sent meanwhile
				p.lead(3)
				p.renew()
			}
			if got := read(p); got != p.last {
				t.Errorf("read index %d under the lease of a term that began with %d", got, p.last)
			}
		})
	}
}

// A view is stored under the lock that orders what the lease says. Stored after
// it, the view of a renewal could bring back a lease that was given up meanwhile.
// Here another goroutine has stood in line for the lock for so long that sync.Mutex
// hands it over at the next Unlock, wherever that is: before the view is stored,
// if the lock is let go too early.
func TestViewsAreStoredUnderTheLock(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := &hookClock{}
	c.Advance(time.Hour)
	p := leading(t, func(cfg *Config) { cfg.Clock = c })
	c.Advance(100 * ms)
	grant := p.granted(p.heartbeat())
	c.Advance(ms)

	invalidated := make(chan struct{})
	c.hook = func() {
		go func() {
			defer close(invalidated)
			p.invalidate()
		}()
		p.standInLine()
	}
	p.Incoming(grant)
	<-invalidated
	p.want(core.Expired)
}

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

// outrun is a clock that interrupts its reader, once, between the reading and
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

// A reader that a renewal has outrun reads the clock once more: its reading is from
// before the view, and that is not the clock's fault.
func TestAReaderThatWasOutrunReadsTheClockAgain(t *testing.T) {
	c := &hookClock{}
	c.Advance(time.Hour)
	p := leading(t, func(cfg *Config) { cfg.Clock = c })
	c.hook = func() {
		c.Advance(ms)
		p.renew()
	}
	if _, _, s := p.check(); s != core.Valid {
		t.Errorf("check() = %v beside a renewal, want %v", s, core.Valid)
	}
}

// A ConfState told once too often turns leases off, and no more: the state machine is
// sound, so reads take a round.
func TestMisuseOfConfStateLeavesRounds(t *testing.T) {
	p := leading(t)
	p.ApplyConfState(voters(1, 2))
	p.want(core.Disabled)
	read := p.startRead()
	p.answer(p.asked(), p.last)
	if read.calls != 1 || read.err != nil || read.read.Path != PathReadIndex {
		t.Errorf("a read after it was answered %d times, %v by %v, want a round", read.calls, read.err, read.read.Path)
	}
}
