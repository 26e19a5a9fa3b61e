package leaderlease

import (
	"context"
	"maps"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

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
		{"Read of nobody who waits", func(p *puppet) { _, _ = p.Read(gone()) }},
		{"ReadIndex of nobody who waits", func(p *puppet) { _, _ = p.ReadIndex(gone()) }},
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

// gone is the context of somebody who waits for nothing.
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
