package leaderlease

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// A Watch that begins after Close tells the last state and ends, as those that
// Close has ended did.
func TestWatchAfterClose(t *testing.T) {
	p := leading(t)
	p.Close()
	events, stop := p.Watch()
	wantEvent(t, events, Event{Term: 2, Status: core.Closed})
	select {
	case e, open := <-events:
		if open {
			t.Errorf("event %+v after the last one", e)
		}
	default:
		t.Error("the channel is not closed")
	}
	stop()
	stop()
}

// soleVoter is a node that has run before and is alone a quorum, with a clock
// that the test drives.
func soleVoter(t *testing.T) (*raft.Config, Config, *handClock) {
	cfg := puppetConfig(t, 1)
	cfg.Raft.Logger = &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}
	storage := bootstrapped(t, 1)
	if err := storage.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}); err != nil {
		t.Fatal(err)
	}
	cfg.Raft.Storage = storage
	clock := &handClock{}
	clock.Advance(time.Hour)
	cfg.Clock = clock
	return cfg.Raft, cfg, clock
}

// A node without a clock keeps its promises: Ready is held back until the clock shows their
// end, whatever Go's clock shows.
func TestReadyIsHeldBackWithoutAClock(t *testing.T) {
	for name, stop := range map[string]func(*handClock){
		"dead":         func(c *handClock) { c.reading.Store(0) },
		"stands still": func(*handClock) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rc, cfg, clock := soleVoter(t)
				raw, err := raft.NewRawNode(rc)
				if err != nil {
					t.Fatal(err)
				}
				l, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				if err := raw.Campaign(); err != nil {
					t.Fatal(err)
				}
				good := clock.reading.Load()
				stop(clock)
				rd := raw.Ready()
				done := make(chan struct{})
				go func() {
					l.Ready(&rd)
					close(done)
				}()
				for _, at := range []time.Duration{0, 900*ms - 1} {
					time.Sleep(10 * time.Second)
					select {
					case <-done:
						t.Fatalf("Ready() returned %v into a restart hold of 900 ms", at)
					default:
					}
					clock.reading.Store(good + int64(900*ms-1))
				}
				clock.Advance(1)
				<-done
			})
		})
	}
}

// Stop does not wait for a promise to end: nothing that was held back goes on.
func TestStopEndsWhatIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc, cfg, clock := soleVoter(t)
		inner := raft.RestartNode(rc)
		n, l, err := Wrap(inner, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := inner.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l.Stats().Withheld.Self == 0 {
			t.Fatal("nothing is held back")
		}
		good := clock.reading.Swap(0)
		defer time.AfterFunc(time.Hour, func() { clock.reading.Store(good + int64(time.Hour)) }).Stop()
		began := time.Now()
		n.Stop()
		if took := time.Since(began); took != 0 {
			t.Errorf("Stop() took %v, want no time", took)
		}
		select {
		case rd := <-n.Ready():
			t.Errorf("Ready() = %+v after Stop, want nothing: a promise forbids it", rd)
		default:
		}
	})
}

// Every method after Close: readers are refused by name, what raft needs of a
// voter goes on, nothing blocks and nothing is revived.
func TestEveryMethodAfterClose(t *testing.T) {
	p := leading(t, func(c *Config) { c.Send = func([]*raftpb.Message) { t.Error("Send was called after Close") } })
	p.Close()
	for name, err := range map[string]error{
		"Read": second(p.Read(t.Context())), "ReadIndex": second(p.ReadIndex(t.Context())), "Token": second(p.Token()),
		"Do": p.Do(t.Context(), func(context.Context) error { t.Error("Do ran work after Close"); return nil }),
	} {
		if nl, ok := errors.AsType[*NoLeaseError](err); !ok || nl.Status != core.Closed {
			t.Errorf("%s() after Close = %v, want %v", name, err, core.Closed)
		}
	}
	for name, start := range map[string]func(context.Context, func(ReadResult, error)){"StartRead": p.StartRead, "StartReadIndex": p.StartReadIndex} {
		calls := 0
		start(t.Context(), func(_ ReadResult, err error) {
			if calls++; err == nil {
				t.Errorf("%s() after Close was served", name)
			}
		})
		if calls != 1 {
			t.Errorf("%s() after Close called done %d times, want once, at once", name, calls)
		}
	}
}

// What raft asks of a lease that is closed holds nothing up, but for promises.
func TestRaftGoesOnAfterClose(t *testing.T) {
	p := leading(t, func(c *Config) { c.Send = func([]*raftpb.Message) { t.Error("Send was called after Close") } })
	p.Close()
	index := p.commitChanges(1)
	p.ApplyConfStateAt(index, voters(1, 2, 3))
	p.Applied(index)
	p.invalidate()
	p.SetDiskStalled(true)
	if !p.Tick() || p.CanCampaign() != nil || p.WouldBlock(raft.Ready{}) {
		t.Error("Tick, CanCampaign or WouldBlock after Close hold raft back, which owes nothing")
	}
	if !p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1)) {
		t.Error("Incoming(read index) after Close = false, want raft to make a round")
	}
	p.follow(4, 2)
	p.promiseTo(2)
	if p.Incoming(p.message(raftpb.MsgVote, 3, 1)) || p.CanCampaign() == nil {
		t.Error("a promise made after Close is not kept")
	}
	if p.asked() != nil {
		t.Error("ReadRequests() has a request after Close, want none")
	}
	if s := p.Info(); s.Status != core.Closed || s.Applied != index || s.Err != nil {
		t.Errorf("Info() after Close = %v, applied %d, %v, want %v, %d", s.Status, s.Applied, s.Err, core.Closed, index)
	}
}

func second[T any](_ T, err error) error { return err }

// Send, and what StartRead calls, may call every method that
// does not block but Ready, whatever they are called from.
func TestCallbacksMayCallTheLease(t *testing.T) {
	var p *puppet
	inside := 0
	everything := func() {
		if inside++; inside > 1 {
			return
		}
		p.Info()
		p.Stats()
		p.TryRead()
		p.StartRead(context.Background(), func(ReadResult, error) {})
		p.StartReadIndex(context.Background(), func(ReadResult, error) {})
		_, _ = p.Token()
		_ = p.Do(t.Context(), func(context.Context) error { p.invalidate(); return nil })
		_, stop := p.Watch()
		stop()
		p.Tick()
		p.Incoming(p.message(raftpb.MsgHeartbeat, 2, 1))
		p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1))
		p.SetDiskStalled(false)
		_ = p.CanCampaign()
		p.WouldBlock(raft.Ready{})
		p.Applied(p.commit.Load())
		p.Close()
	}
	for name, event := range map[string]func(){
		"Ready":          func() { p.follow(3, 2) },
		"Incoming":       func() { p.renew() },
		"Tick":           func() { p.clock.marker.Add(1); p.Tick(); p.follow(3, 0) },
		"Applied":        func() { p.renew(); p.Applied(p.last) },
		"ApplyConfState": func() { p.commitChanges(1); p.ApplyConfState(voters(1)); p.Applied(p.last) },
		"Close":          func() { p.Close() },
		"Send":           func() { p.renew(); p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			inside = 0
			p = expired(t, func(c *Config) { c.Send = func([]*raftpb.Message) { everything() } })
			if name != "Send" {
				p.StartRead(context.Background(), func(ReadResult, error) { everything() })
			}
			event()
			if inside == 0 {
				t.Error("nothing was called")
			}
		})
	}
}

// Go runs the tests of a package in the order of its files. This one comes first:
// a lock that a method has kept makes most other tests hang.

// call is one call of a Lease.
type call struct {
	name string
	do   func(p *puppet)
}

// calls are those that do not block, with each way out that they have. None needs
// another before it.
func calls() []call {
	all := []call{
		{"Ready of nothing", func(p *puppet) { p.Lease.Ready(&raft.Ready{}) }},
		{"Ready of a leader", func(p *puppet) { p.win(p.term + 1) }},
		{"Ready of a follower", func(p *puppet) { p.follow(p.term+1, 2) }},
		{"WouldBlock of a candidate", func(p *puppet) { p.WouldBlock(raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StateCandidate}}) }},
		{"WouldBlock of nothing", func(p *puppet) { p.WouldBlock(raft.Ready{}) }},
		{"Tick", func(p *puppet) { p.Tick() }},
		{"CanCampaign", func(p *puppet) { _ = p.CanCampaign() }},
		{"TryRead", func(p *puppet) { p.TryRead() }},
		{"StartRead", func(p *puppet) { p.startRead() }},
		{"StartReadIndex", func(p *puppet) { p.StartReadIndex(context.Background(), func(ReadResult, error) {}) }},
		{"Read after its context has ended", func(p *puppet) { _, _ = p.Read(gone()) }},
		{"ReadIndex after its context has ended", func(p *puppet) { _, _ = p.ReadIndex(gone()) }},
		{"Token", func(p *puppet) { _, _ = p.Token() }},
		{"Do", func(p *puppet) {
			_ = p.Do(context.Background(), func(context.Context) error { p.invalidate(); return nil })
		}},
		{"Context and its end", func(p *puppet) {
			if _, stop, err := p.Context(context.Background()); err == nil {
				stop()
			}
		}},
		{"Watch and its end", func(p *puppet) { _, stop := p.Watch(); stop() }},
		{"Info", func(p *puppet) { p.Info() }},
		{"Stats", func(p *puppet) { p.Stats() }},
		{"SetDiskStalled", func(p *puppet) { p.SetDiskStalled(false) }},
		{"Invalidate", func(p *puppet) { p.invalidate() }},
		{"Applied", func(p *puppet) { p.Applied(p.commit.Load()) }},
		{"a disruption", func(p *puppet) { p.clock.marker.Add(1); p.Tick() }},
		{"a clock that fails", func(p *puppet) { r := p.clock.reading.Swap(0); p.Tick(); p.clock.reading.Store(r) }},
	}
	for _, typ := range slices.Sorted(maps.Keys(raftpb.MessageType_name)) {
		all = append(all, call{"Incoming " + raftpb.MessageType(typ).String(), func(p *puppet) {
			m := p.message(raftpb.MessageType(typ), 2, 1)
			p.Incoming(m)
			m.Reject = new(true)
			p.Incoming(m)
		}})
	}
	// These end what the others are about.
	return append(all,
		call{"ApplyConfState too often", func(p *puppet) { p.ApplyConfState(voters(1)) }},
		call{"Applied too far", func(p *puppet) { p.Applied(p.commit.Load() + 1) }},
		call{"Close", func(p *puppet) { p.Close() }},
		call{"Close again", func(p *puppet) { p.Close() }})
}

// gone is a context that has ended.
func gone() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// isFree reports whether nothing holds the lock, which the calls of one goroutine
// leave so. It fails the test otherwise, where a further call would hang.
func (p *puppet) isFree(when string) bool {
	p.t.Helper()
	if !p.mu.TryLock() {
		p.t.Errorf("%s: the lease is locked, the next call would hang", when)
		return false
	}
	p.mu.Unlock()
	return true
}

// Every method leaves the lock free, whatever it finds and returns.
func TestEveryMethodLeavesTheLockFree(t *testing.T) {
	for _, c := range calls() {
		p := newPuppet(t)
		c.do(p)
		if !p.isFree("after " + c.name) {
			return
		}
	}
	for _, build := range []func(testing.TB, ...func(*Config)) *puppet{leading, expired, following, bound} {
		p := build(t)
		for _, c := range calls() {
			c.do(p)
			if !p.isFree("after " + c.name) {
				return
			}
		}
	}
}

// done and Send may call each of them, whatever they are called from themselves.
func TestCallbacksFindTheLockFree(t *testing.T) {
	wait := func(p *puppet, done func(ReadResult, error)) { p.StartRead(context.Background(), done) }
	for name, tt := range map[string]struct {
		build func(testing.TB, ...func(*Config)) *puppet
		event func(p *puppet, done func(ReadResult, error))
	}{
		"StartRead, served":    {leading, wait},
		"StartRead, refused":   {leading, func(p *puppet, done func(ReadResult, error)) { p.Close(); wait(p, done) }},
		"StartRead, no leader": {leading, func(p *puppet, done func(ReadResult, error)) { p.follow(3, 0); wait(p, done) }},
		"Ready, a new leader":  {expired, func(p *puppet, done func(ReadResult, error)) { wait(p, done); p.follow(3, 2) }},
		"Ready, an answer":     {expired, func(p *puppet, done func(ReadResult, error)) { wait(p, done); p.answer(p.asked(), p.last) }},
		"Incoming, a renewal":  {expired, func(p *puppet, done func(ReadResult, error)) { wait(p, done); p.renew() }},
		"Incoming, not attested": {following, func(p *puppet, done func(ReadResult, error)) {
			wait(p, done)
			m := p.message(raftpb.MsgReadIndexResp, 3, 1)
			m.Entries = []*raftpb.Entry{{Data: p.asked()}}
			p.Incoming(m)
		}},
		"Applied":         {leading, func(p *puppet, done func(ReadResult, error)) { p.commitNew(); wait(p, done); p.Applied(p.last) }},
		"Applied too far": {expired, func(p *puppet, done func(ReadResult, error)) { wait(p, done); p.Applied(p.last + 1) }},
		"Close":           {expired, func(p *puppet, done func(ReadResult, error)) { wait(p, done); p.Close() }},
		"Send": {leading, func(p *puppet, _ func(ReadResult, error)) {
			p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1))
		}},
		"Send, from a renewal": {expired, func(p *puppet, _ func(ReadResult, error)) {
			p.win(3)
			p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1))
			p.commitTo(p.last)
			p.renew()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var p *puppet
			called := 0
			everything := func(from string) {
				if called++; called > 1 || !p.isFree("in "+from) {
					return // those that it calls may call back, too
				}
				for _, c := range calls() {
					c.do(p)
					if !p.isFree("in " + from + ", after " + c.name) {
						return
					}
				}
			}
			p = tt.build(t, func(c *Config) { c.Send = func([]*raftpb.Message) { everything("Send") } })
			tt.event(p, func(ReadResult, error) { everything("done") })
			if called == 0 {
				t.Error("nothing was called")
			}
			p.isFree("at the end")
		})
	}
}

// A nil *Lease leaves raft as it is.
func TestANilLeaseLeavesRaftAsItIs(t *testing.T) {
	var l *Lease
	vote := &raftpb.Message{Type: raftpb.MsgVote.Enum(), To: new(uint64(2))}
	rd := raft.Ready{
		SoftState: &raft.SoftState{RaftState: raft.StateCandidate},
		Messages:  []*raftpb.Message{vote}, ReadStates: []raft.ReadState{{Index: 1}},
	}
	if l.Ready(&rd); len(rd.Messages) != 1 || rd.Messages[0] != vote || vote.GetType() != raftpb.MsgVote || len(rd.ReadStates) != 1 {
		t.Errorf("Ready() leaves %v, want it as it was", rd)
	}
	if !l.Incoming(vote, ProcessID{}) || !l.Tick() || l.WouldBlock(&rd) || l.CanCampaign() != nil || l.ReadRequests() != nil {
		t.Error("a nil Lease keeps something back, or asks for something")
	}
}

// Everything else is refused, or does nothing: no method is left out.
func TestANilLeaseRefuses(t *testing.T) {
	var l *Lease
	refused := func(what string, err error) {
		t.Helper()
		if nl, ok := errors.AsType[*NoLeaseError](err); !ok || nl.Status != core.Disabled {
			t.Errorf("%s of a nil Lease = %v, want %v", what, err, core.Disabled)
		}
	}
	refused("Read", second(l.Read(t.Context())))
	refused("ReadIndex", second(l.ReadIndex(t.Context())))
	l.StartRead(t.Context(), ReadModeLease, func(_ ReadResult, err error) { refused("StartRead", err) })
	l.StartRead(t.Context(), ReadModeQuorum, func(_ ReadResult, err error) { refused("StartReadIndex", err) })
	refused("Token", second(l.Token()))
	refused("Do", l.Do(t.Context(), func(context.Context) error { return nil }))
	if index, s := l.TryRead(); index != 0 || s != core.Disabled {
		t.Errorf("TryRead() = %d, %v, want 0, %v", index, s, core.Disabled)
	}
	if i := l.Info(); i.Valid() || i.Status != core.Disabled {
		t.Errorf("Info() = %+v, want %v", i, core.Disabled)
	}
	events, stop := l.Watch()
	defer stop()
	wantEvent(t, events, Event{Status: core.Disabled})
	if _, more := <-events; more {
		t.Error("Watch() goes on, want it to end")
	}

	v := reflect.ValueOf(l)
	for m, value := range v.Methods() {
		in := make([]reflect.Value, m.Type.NumIn()-1)
		for i := range in {
			in[i] = reflect.Zero(m.Type.In(i + 1))
			if in[i].Kind() == reflect.Func {
				in[i] = reflect.ValueOf(func(ReadResult, error) {})
				if m.Name == "Do" {
					in[i] = reflect.ValueOf(func(context.Context) error { return nil })
				}
			}
		}
		value.Call(in) // panics where nil was forgotten
	}
}
