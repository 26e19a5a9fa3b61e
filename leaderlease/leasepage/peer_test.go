package leasepage

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

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
