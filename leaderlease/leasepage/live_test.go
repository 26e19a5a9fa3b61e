package leasepage

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
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

// Any message of another member can be drawn: a panic would end the process.
func TestGarbageIsDrawn(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		number := func() int64 {
			return []int64{0, 1, -1, 2, r.Int64N(1000), r.Int64N(100) * int64(time.Millisecond), int64(time.Hour), math.MaxInt64, math.MinInt64, r.Int64()}[r.IntN(10)]
		}
		var all []leasetrace.Process
		for range 1 + r.IntN(5) {
			p := leasetrace.Process{Start: leasetrace.Start{
				ID: r.Uint64N(4), At: core.Instant(number()), Duration: time.Duration(number()), MaxClockSkew: time.Duration(number()), Hold: time.Duration(number()),
			}}
			for range r.IntN(60) {
				p.Events = append(p.Events, leasetrace.Event{
					Seq: uint64(number()), At: core.Instant(number()), Peer: r.Uint64N(4), Term: uint64(number()), Instant: core.Instant(number()), Duration: time.Duration(number()),
					Reading: core.Instant(number()), Number: uint64(number()), Role: raft.StateType(r.IntN(4)), Message: raftpb.MessageType(r.IntN(20)),
					Kind: leasetrace.Kind(r.IntN(leasetrace.NumKinds)), Status: core.Status(r.IntN(12)), OK: r.IntN(2) == 0,
				})
			}
			all = append(all, p)
		}
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Fatalf("seed %d: %v", seed, p)
				}
			}()
			if _, err := json.Marshal(draw(all, names)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for i := range all {
				all[i].Events = eventsSince(thin(all[i].Events), core.Instant(number()))
			}
			draw(all, names)
		}()
	}
}

// If a member's machine is gone no message comes, and no error either: Listen is called again.
func TestASilentMemberIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		l := NewLive(Config{Listen: func(ctx context.Context, _ uint64, _ func([]byte) error) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		if err := l.listen(ctx, 2, make(chan remote)); err == nil || ctx.Err() != nil {
			t.Errorf("listen() = %v after an hour of silence, want an error before", err)
		}
	})
}

// A removed member is not drawn.
func TestARemovedMemberIsNotDrawn(t *testing.T) {
	l := alone(t, new(countingClock))
	s := testSession(l)
	for _, member := range []uint64{2, 9} {
		h := remote{member: member, history: history{reading: 9 * msec}}
		h.Start = leasetrace.Start{ID: member, At: msec, Duration: time.Second}
		h.Events = []leasetrace.Event{{Seq: 1, At: 8 * msec, Kind: leasetrace.KindVoters, Number: 3}}
		s.addRemote(&h)
	}
	var p livePicture
	if err := json.Unmarshal(s.drawPicture(7*msec, true), &p); err != nil || len(p.Lanes) != len(names) {
		t.Errorf("%d lanes are drawn, %v, want those of %d members", len(p.Lanes), err, len(names))
	}
}

// The number of feeds is bounded, and one that ends makes room for another.
func TestFeedsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := alone(t, new(countingClock))
		send := func([]byte) error { return nil }
		ctx, cancel := context.WithCancel(t.Context())
		for range maxViewers {
			go func() { _ = l.Feed(ctx, send) }()
		}
		synctest.Wait()
		if err := l.Feed(ctx, send); !errors.Is(err, ErrTooManyFeeds) {
			t.Errorf("feed %d = %v, want %v", maxViewers+1, err, ErrTooManyFeeds)
		}
		cancel()
		synctest.Wait()
		if err := l.Feed(ctx, send); err != nil {
			t.Errorf("a feed when the others have ended = %v", err)
		}
	})
}

// A member that restarts again and again, or says that it does, takes bounded memory, and no
// other member's place.
func TestManyProcessesOfOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := alone(t, new(countingClock))
		s := testSession(l)
		tell := func(member, at uint64) {
			h := remote{member: member, history: history{reading: 9 * msec}}
			h.Start = leasetrace.Start{ID: member, At: leaderlease.Instant(at), Duration: time.Second}
			h.Events = []leasetrace.Event{{Seq: 1, At: 8 * msec, Kind: leasetrace.KindVoters, Number: 3}}
			s.addRemote(&h)
		}
		tell(2, 1)
		for at := range uint64(500) {
			tell(3, at+1)
			s.drawPicture(7*msec, true)
			s.placed[leasetrace.Start{ID: 3, At: leaderlease.Instant(at + 1)}] = anchor{at: 1}
		}
		if s.drawPicture(7*msec, true); len(s.placed) > maxViewers+1 {
			t.Errorf("%d processes are remembered, want at most %d", len(s.placed), maxViewers+1)
		}
		if n := len(s.others); n > maxViewers {
			t.Errorf("%d processes are kept, want at most %d", n, maxViewers)
		}
		if !slices.ContainsFunc(s.others, func(o *remote) bool { return o.member == 2 }) {
			t.Error("member 2 is forgotten since member 3 restarts")
		}
	})
}
