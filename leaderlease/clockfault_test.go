package leaderlease

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

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
		if err := p.MayCampaign(); err != nil {
			t.Fatalf("MayCampaign() after a reading that failed = %v, want nil", err)
		}
	}
}

// heldCandidate is a sole voter in its restart hold, and the Ready with which it would
// elect itself.
func heldCandidate(t *testing.T) (*Lease, *handClock, raft.Ready) {
	t.Helper()
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
	return l, clock, raw.Ready()
}

// Blocks ends as Ready does, by Go's clock, where the lease clock never shows the
// end of what is owed.
func TestBlocksEndsWithoutAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, clock, rd := heldCandidate(t)
		clock.reading.Store(0)
		start := time.Now()
		for l.Blocks(&rd) && time.Since(start) < time.Hour {
			time.Sleep(10 * ms)
		}
		if took := time.Since(start); took < l.longest || took > l.longest+20*ms {
			t.Errorf("Blocks() was true for %v, want %v", took, l.longest)
		}
	})
}

// Go's clock jumps with the machine. While the lease clock moves, that one decides,
// and its marker begins the hold anew.
func TestGoClockDoesNotEndAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, clock, rd := heldCandidate(t)
		for range 3 {
			time.Sleep(time.Hour)
			clock.Advance(time.Hour)
			clock.marker.Add(1)
			if !l.Blocks(&rd) {
				t.Fatal("Blocks() = false right after a disruption, want the longest promise held")
			}
		}
		done := make(chan []*raftpb.Message, 1)
		go func() {
			l.Ready(&rd)
			done <- rd.Messages
		}()
		for range 30 { // 3 s by Go's clock, 0.3 s by the lease clock
			time.Sleep(100 * ms)
			clock.Advance(10 * ms)
		}
		synctest.Wait()
		select {
		case <-done:
			t.Error("Ready() came back 0.3 s into a hold of 0.9 s, want Go's clock to have no say")
		default:
		}
		clock.Advance(time.Second)
		<-done
	})
}

// A grant that leaves after Go's clock has ended one hold is owed as long as ever,
// although the lease clock stands still.
func TestAGrantOfAStandingClockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		p.follow(2, 3)
		candidate := raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StateCandidate}}
		grant := func() {
			p.Incoming(probed(p.message(raftpb.MsgHeartbeat, 3, 1)))
			p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgHeartbeatResp, 1, 3)}})
		}
		for range 3 {
			grant()
			if !p.Blocks(candidate) {
				t.Error("Blocks() = false right after a grant, want true")
			}
			time.Sleep(p.longest)
			if p.Blocks(candidate) {
				t.Error("Blocks() = true when the longest promise has passed by Go's clock, want false")
			}
		}
	})
}

// The marker of a dead clock can still be read: Go's clock may have jumped with it.
func TestADisruptionOfADeadClockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet(t)
		p.follow(2, 3)
		p.Incoming(probed(p.message(raftpb.MsgHeartbeat, 3, 1)))
		p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgHeartbeatResp, 1, 3)}})
		p.clock.reading.Store(0)
		candidate := raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StateCandidate}}
		p.Blocks(candidate)
		time.Sleep(time.Hour)
		p.clock.marker.Add(1)
		if !p.Blocks(candidate) {
			t.Error("Blocks() = false after a disruption by which Go's clock jumped, want true")
		}
		time.Sleep(p.longest)
		if p.Blocks(candidate) {
			t.Error("Blocks() = true for longer than the longest promise, want false")
		}
	})
}

func probed(m *raftpb.Message) *raftpb.Message {
	attachProbe(m, core.Probe{Sent: core.Instant(time.Minute), Duration: 900 * ms})
	return m
}
