package leasepage

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// countingClock is a clock that counts how often it is read.
type countingClock struct{ asked atomic.Int64 }

func (h *countingClock) Now() leaderlease.Instant {
	h.asked.Add(1)
	return 7 * msec
}

// alone returns the Live of a member that reaches no other member.
func alone(t *testing.T, clock *countingClock) *Live {
	t.Helper()
	trace := leasetrace.New(8)
	_, err := leaderlease.New(leaderlease.Config{
		Raft: &raft.Config{
			ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: raft.NewMemoryStorage(), MaxInflightMsgs: 1,
			PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
		},
		TickInterval: 100 * time.Millisecond, Clock: clock, Tracer: trace,
	})
	if err != nil {
		t.Fatal(err)
	}
	clock.asked.Store(0)
	return NewLive(Config{
		ID: 1, Trace: trace, Now: clock.Now,
		Members: func() map[uint64]string { return names }, Listen: func(context.Context, uint64, func([]byte) error) error { return context.Canceled },
	})
}

func testSession(l *Live) *session {
	s := newSession(l, func() {})
	s.own.Take(l.cfg.Trace)
	return s
}

// Without an open page a Live does no work.
func TestWithoutPagesNothingIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock countingClock
		l := alone(t, &clock)
		time.Sleep(time.Hour)
		if n := clock.asked.Load(); n > 0 {
			t.Errorf("the clock was read %d times, and no page is open", n)
		}
		page, leave := l.join()
		if p := <-page.pictures; len(p) == 0 {
			t.Error("an open page gets no picture")
		}
		leave()
		before := clock.asked.Load()
		time.Sleep(time.Hour)
		if n := clock.asked.Load() - before; n > 0 {
			t.Errorf("the clock was read %d times after the page was closed", n)
		}
	})
}

// A page that does not read is disconnected, and delays no other page.
func TestASlowPageIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := alone(t, new(countingClock))
		slow, leaveSlow := l.join()
		quick, leave := l.join()
		for range 100 {
			<-quick.pictures
		}
		pictures := 0
		for range slow.pictures { // until it is closed
			pictures++
		}
		if pictures > cap(slow.pictures) {
			t.Errorf("%d pictures waited for a page that does not read, want at most %d", pictures, cap(slow.pictures))
		}
		leaveSlow()
		leave()
	})
}

// A feed may tell about its own member only.
func TestParseRefuses(t *testing.T) {
	const start = `{"trace":1,"id":"1","at":5,"duration":5}`
	if h, err := parse([]byte(`{"reading":7}`+"\n"+start), 1); err != nil || h.reading != 7 {
		t.Fatalf("parse() of a message = %+v, %v", h, err)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "no heading": []byte("what\n" + start), "no trace": []byte("{}\nwhat"), "no start": []byte("{}\n"),
		"no duration": []byte("{}\n" + `{"trace":1,"id":"1","at":5}`),
		"of another":  []byte("{}\n" + `{"trace":1,"id":"9","at":5,"duration":5}`),
		"of two":      []byte("{}\n" + start + "\n" + `{"trace":1,"id":"1","at":6,"duration":5}`),
	} {
		if h, err := parse(b, 1); err == nil {
			t.Errorf("parse(%s) = %+v, want an error", name, h)
		}
	}
}

// A member that was never heard has a lane, for it may hold a lease.
func TestMembersThatWereNeverHeardAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := alone(t, new(countingClock))
		l.cfg.Votes = func(id uint64) bool { return id != 3 }
		page, leave := l.join()
		defer leave()
		var p livePicture
		if err := json.Unmarshal(<-page.pictures, &p); err != nil {
			t.Fatal(err)
		}
		if len(p.Lanes) != len(names) {
			t.Fatalf("%d lanes are shown, want one for each of %d members", len(p.Lanes), len(names))
		}
		for _, lane := range p.Lanes[1:] {
			if len(lane.Heard) != 0 || lane.Learner != (lane.Name == "n3") {
				t.Errorf("the lane of a member that was not heard is %+v", lane)
			}
		}
	})
}

// The lease of a sole voter is drawn up to now, hours after its last event, and in pictures
// of what is new as well.
func TestALivePageOfASoleVoter(t *testing.T) {
	l := alone(t, new(countingClock))
	l.cfg.Members = func() map[uint64]string { return map[uint64]string{1: "n1"} }
	s := testSession(l)
	s.own.Process = soleVoter().Process
	now := leaderlease.Instant(7 * time.Hour)
	for _, full := range []bool{true, false, false} {
		now = now.Add(drawInterval)
		var p livePicture
		if err := json.Unmarshal(s.drawPicture(now, full), &p); err != nil {
			t.Fatal(err)
		}
		part := keep
		if !full {
			part = recent
		}
		if want := rounded(int64(now.Add(-part))); len(p.Lanes) != 1 || p.From != want || len(p.Lanes[0].Heard) != 1 || p.Lanes[0].Heard[0].From != want {
			t.Fatalf("the picture begins at %v, its lanes are %+v, want one that is heard from %v on", p.From, p.Lanes, want)
		}
		if got := p.Lanes[0].Leases; len(got) != 1 || got[0].Usable != p.Now || got[0].After != 0 || got[0].Known > p.From {
			t.Errorf("at %v the leases are %+v, want one that is valid now", p.Now, got)
		}
	}
}
