package leaderlease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/leaderlease/go/leaderlease/core"
)

// expired returns a puppet that leads with an expired lease.
func expired(tb testing.TB, amend ...func(*Config)) *puppet {
	tb.Helper()
	p := leading(tb, amend...)
	p.clock.Advance(900 * ms)
	p.want(core.Expired)
	return p
}

// following returns a puppet that follows node 3 in term 2.
func following(tb testing.TB, amend ...func(*Config)) *puppet {
	tb.Helper()
	p := newPuppet(tb, amend...)
	p.follow(2, 3)
	return p
}

func TestReadUnderLease(t *testing.T) {
	p := leading(t)
	p.clock.Advance(usable - 1)
	r, err := p.Read(t.Context())
	want := ReadResult{Index: p.last, Term: 2, Path: PathLease, Remaining: 1}
	if r != want || err != nil {
		t.Errorf("Read() = %+v, %v, want %+v", r, err, want)
	}
	if index, s := p.TryRead(); index != p.last || s != core.Valid {
		t.Errorf("TryRead() = %d, %v, want %d, valid", index, s, p.last)
	}
	if s := p.Stats(); s.Reads[PathLease] != 1 || s.Rounds != 0 {
		t.Errorf("Stats() = %d lease reads, %d rounds, want 1, 0", s.Reads[PathLease], s.Rounds)
	}
	p.clock.Advance(1)
	if index, s := p.TryRead(); index != 0 || s != core.Margin {
		t.Errorf("TryRead() in the margin = %d, %v, want 0, margin", index, s)
	}
}

// A hundred reads cost the quorum rounds of two: the first has a round of its
// own, and all that came after it was asked for share the next one.
func TestConcurrentReadsShareARound(t *testing.T) {
	const readers = 100
	synctest.Test(t, func(t *testing.T) {
		p := expired(t)
		reads := make([]<-chan answered, readers)
		for i := range reads {
			reads[i] = p.readSoon(t.Context())
		}
		synctest.Wait()
		if n := p.Stats().Rounds; n != 1 {
			t.Errorf("Stats().Rounds = %d for %d waiting reads, want 1", n, readers)
		}
		first := p.asked()
		p.answer(first, p.last)
		if n := p.Info().Waiting; n != readers-1 {
			t.Errorf("Info().Waiting = %d after the first round, want %d: it was asked before they came", n, readers-1)
		}
		p.answer(p.asked(), p.last)
		for _, read := range reads {
			if a := <-read; a.read.Path != PathReadIndex || a.read.Index != p.last || a.err != nil {
				t.Fatalf("Read() = %+v, %v, want index %d by a quorum round", a.read, a.err, p.last)
			}
		}
		if s := p.Stats(); s.Rounds != 2 || s.Reads[PathReadIndex] != readers {
			t.Errorf("Stats() = %d rounds, %d reads, want 2, %d", s.Rounds, s.Reads[PathReadIndex], readers)
		}
	})
}

// A read joins the renewal that covers the instant of its arrival, also one
// that was under way before it came, and only that (docs/design.md, A read).
func TestReadsJoinARenewal(t *testing.T) {
	tests := []struct {
		name   string
		later  func(p *puppet)
		joined bool
	}{
		{"the last instant that the renewal covers", func(p *puppet) { p.clock.Advance(usable - 1) }, true},
		{"the margin of the renewal", func(p *puppet) { p.clock.Advance(usable) }, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := expired(t)
			resp := p.granted(p.heartbeat())
			tc.later(p)
			o := p.startRead()
			index := p.last
			p.commitNew()
			p.Applied(p.last)
			p.Incoming(resp)
			p.renew() // which covers both
			if o.calls != 1 || o.err != nil || o.read.Path != PathJoined || o.read.Index != index || o.read.Term != 2 {
				t.Errorf("read = %+v, called %d times, error %v, want index %d, joined", o.read, o.calls, o.err, index)
			}
		})
	}
	for _, tc := range tests {
		t.Run(tc.name+", alone", func(t *testing.T) {
			p := expired(t)
			resp := p.granted(p.heartbeat())
			tc.later(p)
			o := p.startRead()
			p.Incoming(resp)
			if joined := o.calls == 1 && o.read.Path == PathJoined; joined != tc.joined {
				t.Errorf("read joined: %v (%+v), want %v", joined, o.read, tc.joined)
			}
		})
	}
}

// Reads that come before the term's first commit wait for it; raft's answer
// from before it is not believed.
func TestReadsBeforeTheFirstCommit(t *testing.T) {
	p := newPuppet(t)
	p.win(2)
	p.renew()
	p.want(core.NoOwnTermCommit)
	o := p.startRead()
	rctx := p.asked()
	p.answer(rctx, 1)
	if o.calls != 0 {
		t.Fatalf("read = %+v, %v before an entry of the term is committed, want it to wait", o.read, o.err)
	}
	p.commitTo(p.last)
	p.Applied(p.last)
	if o.calls != 1 || o.err != nil || o.read.Index != p.last {
		t.Errorf("read = %+v, called %d times, error %v, want index %d", o.read, o.calls, o.err, p.last)
	}
}

func TestReadFailsFast(t *testing.T) {
	tests := []struct {
		name  string
		build func(testing.TB) *puppet
		event func(*puppet)
		want  NoLeaseError
	}{
		{
			"the leader hears of a later term",
			func(tb testing.TB) *puppet { return expired(tb) },
			func(p *puppet) { p.follow(3, 0) },
			NoLeaseError{Term: 3, Leader: 0, Status: core.NotLeader, RetryAfter: 100 * ms},
		},
		{
			// Between the terms another node may have led, and committed what
			// the read must see.
			"the leader is elected again in a later term",
			func(tb testing.TB) *puppet { return expired(tb) },
			func(p *puppet) { p.win(3) },
			NoLeaseError{Term: 3, Leader: 1, Status: core.NotLeader, RetryAfter: 100 * ms},
		},
		{
			"the follower's leader is replaced",
			func(tb testing.TB) *puppet { return following(tb) },
			func(p *puppet) { p.follow(3, 2) },
			NoLeaseError{Term: 3, Leader: 2, Status: core.NotLeader},
		},
		{
			"the follower's leader is forgotten",
			func(tb testing.TB) *puppet { return following(tb) },
			func(p *puppet) { p.follow(2, 0) },
			NoLeaseError{Term: 2, Leader: 0, Status: core.NotLeader, RetryAfter: 100 * ms},
		},
		{
			"close",
			func(tb testing.TB) *puppet { return expired(tb) },
			func(p *puppet) { p.Close() },
			NoLeaseError{Term: 2, Leader: 1, Status: core.Closed},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := tc.build(t)
				read := p.readSoon(t.Context())
				synctest.Wait()
				tc.event(p)
				a := <-read
				got, ok := errors.AsType[*NoLeaseError](a.err)
				if !ok || *got != tc.want || !errors.Is(a.err, ErrNoLease) {
					t.Errorf("Read() = %v, want %v", a.err, &tc.want)
				}
			})
		})
	}
	t.Run("no leader is known", func(t *testing.T) {
		p := newPuppet(t)
		if _, err := p.Read(t.Context()); !errors.Is(err, ErrNoLease) {
			t.Errorf("Read() = %v, want ErrNoLease at once", err)
		}
		if n := p.Stats().Rounds; n != 0 {
			t.Errorf("Stats().Rounds = %d, want none without a leader to ask", n)
		}
	})
}

// Raft loses read requests without notice, so they are repeated under a new id.
func TestLostRoundIsRepeated(t *testing.T) {
	p := following(t)
	o := p.startRead()
	lost := p.asked()
	for range 4 {
		p.Tick()
	}
	if rctx := p.asked(); rctx != nil {
		t.Fatalf("request %x after 4 ticks, want it half an election timeout after the first", rctx)
	}
	p.Tick()
	again := p.asked()
	if again == nil || string(again) == string(lost) {
		t.Fatalf("request after 5 ticks = %x, want a new one, other than %x", again, lost)
	}
	p.answer(again, 1)
	if o.calls != 1 || o.err != nil || o.read.Path != PathForwarded || o.read.Index != 1 {
		t.Errorf("read = %+v, called %d times, error %v, want index 1, forwarded", o.read, o.calls, o.err)
	}
	if n := p.Stats().Rounds; n != 2 {
		t.Errorf("Stats().Rounds = %d, want 2", n)
	}
	for range 20 {
		p.Tick()
	}
	if rctx := p.asked(); rctx != nil {
		t.Errorf("request %x with nothing waiting, want none", rctx)
	}
}

// A request that the loop has not taken yet is replaced, never queued.
func TestOneRequestWaitsAtMost(t *testing.T) {
	notified := 0
	p := following(t, func(c *Config) { c.NotifyRead = func() { notified++ } })
	o := p.startRead()
	for range 5 {
		p.Tick()
	}
	if notified != 2 {
		t.Errorf("NotifyRead was called %d times, want once for each of 2 requests", notified)
	}
	p.answer(p.asked(), 1)
	if o.calls != 1 || p.asked() != nil {
		t.Errorf("read called %d times with a request left over, want the newest request to be the only one", o.calls)
	}
}

// Answers that were meant for another node, or for an earlier start of this
// node, confirm nothing.
func TestForeignReadStatesAreIgnored(t *testing.T) {
	p := following(t)
	o := p.startRead()
	rctx := p.asked()
	other := newPuppet(t).nonce.id(1, false)
	for _, foreign := range [][]byte{nil, {1}, other, rctx[:8], append(rctx[:16:16], 0)} {
		p.answer(foreign, 1)
	}
	if o.calls != 0 {
		t.Fatalf("read = %+v, %v by an answer that was not its own, want it to wait", o.read, o.err)
	}
	p.answer(rctx, 1)
	if o.calls != 1 || o.err != nil {
		t.Errorf("read called %d times, error %v, want once by its own answer", o.calls, o.err)
	}
}

// done may start another read, from wherever it is called.
func TestDoneMayReadAgain(t *testing.T) {
	tests := []struct {
		name   string
		build  func(testing.TB) *puppet
		finish func(*puppet)
		served bool
	}{
		{"from Incoming", func(tb testing.TB) *puppet { return expired(tb) }, func(p *puppet) { p.renew() }, true},
		{"from Ready", func(tb testing.TB) *puppet { return following(tb) }, func(p *puppet) { p.answer(p.asked(), 1) }, true},
		{"from Applied", func(tb testing.TB) *puppet {
			p := leading(tb)
			p.commitNew()
			return p
		}, func(p *puppet) { p.Applied(p.last) }, true},
		{"from Close", func(tb testing.TB) *puppet { return expired(tb) }, func(p *puppet) { p.Close() }, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := tc.build(t)
			var second *outcome
			p.StartRead(context.Background(), func(_ ReadResult, err error) {
				if (err == nil) != tc.served {
					t.Errorf("first read: error %v, want served: %v", err, tc.served)
				}
				second = p.startRead()
			})
			tc.finish(p)
			if second == nil {
				t.Fatal("the first read was not answered")
			}
			p.Close()
			if second.calls != 1 {
				t.Errorf("second read was answered %d times, want once", second.calls)
			}
		})
	}
}

func TestReadUnderLeaseAllocatesNothing(t *testing.T) {
	p := leading(t)
	ctx := t.Context()
	for name, read := range map[string]func(){
		"TryRead":   func() { p.TryRead() },
		"Read":      func() { _, _ = p.Read(ctx) },
		"StartRead": func() { p.StartRead(context.Background(), func(ReadResult, error) {}) },
		"Token":     func() { _, _ = p.Token() },
	} {
		if n := testing.AllocsPerRun(1000, read); n != 0 {
			t.Errorf("%s under a valid lease: %v allocations, want none", name, n)
		}
	}
	if s := p.Stats(); s.Reads[PathLease] < 2000 {
		t.Errorf("Stats() = %d lease reads, want all of them under the lease", s.Reads[PathLease])
	}
}

// With leases switched off every read takes a round, and the node promises all
// the same.
func TestDisabledReadsTakeARound(t *testing.T) {
	p := newPuppet(t, func(c *Config) { c.Disabled = true })
	p.lead(2)
	hb := p.heartbeat()
	if _, err := probeOf(hb); err == nil {
		t.Error("heartbeat carries a probe, want none from a node with leases off")
	}
	p.want(core.Disabled)
	o := p.startRead()
	p.answer(p.asked(), p.last)
	if o.calls != 1 || o.err != nil || o.read.Path != PathReadIndex {
		t.Errorf("read = %+v, %v, want it by a quorum round", o.read, o.err)
	}
	p.follow(3, 2)
	p.promiseTo(2)
}
