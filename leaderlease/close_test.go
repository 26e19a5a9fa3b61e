package leaderlease

import (
	"context"
	"errors"
	"io"
	"log"
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
		if l.Stats().Withheld[WithheldSelf] == 0 {
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
