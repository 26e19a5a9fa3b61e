package floodgate

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/flood"
)

// Who resets what has waited for long pays from what it was answered, and whoever
// cannot waits for a while only, among its like: nobody is closed for it.
func TestOldResetsHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const strangers, each = 200, 250
		g := New(quiet(), 1<<20)
		served, idle := connect(t, g), connect(t, g)
		for id := uint32(1); id < 2*each; id += 2 {
			served.send(answer(id))
			if err := served.receive(request(id)); err != nil {
				t.Fatal(err)
			}
		}
		all := []*session{served}
		for range strangers {
			all = append(all, connect(t, g))
		}
		var opened, gone []byte
		for id := uint32(2*each + 1); id < 4*each; id += 2 {
			opened, gone = append(opened, request(id)...), append(gone, reset(id)...)
		}
		for _, s := range all {
			if err := s.receive(opened); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(young)
		began := time.Now()
		var wg sync.WaitGroup
		for _, s := range all[1:] {
			wg.Go(func() {
				if err := s.receive(gone); err != nil || time.Since(began) > maxWait {
					t.Errorf("who resets old streams goes on after %v, %v, want within %v", time.Since(began), err, maxWait)
				}
			})
		}
		synctest.Wait()
		if err := idle.receive(bytes.Repeat(raw(framePing, 0, 0, 8), startCredit+300)); err != nil {
			t.Errorf("who owes 300 PINGs meanwhile: %v, want nothing", err)
		}
		// Each answer was two frames.
		if err := errors.Join(served.receive(gone), served.receive(gone)); err != nil || time.Since(began) > 0 {
			t.Errorf("who was answered goes on after %v, %v, want at once", time.Since(began), err)
		}
		if err := served.receive(gone); err != nil || time.Since(began) > maxWait {
			t.Errorf("who has no credit left goes on after %v, %v, want within %v", time.Since(began), err, maxWait)
		}
		wg.Wait()
	})
}

// What is forgiven takes turns, too: many connections that stay below what closes
// them get no more through than few that do not. Who sends a PING now and then is
// left alone.
func TestForgivenFramesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const floods, seconds, each = 400, 10, 50
		g := New(quiet(), 1<<20)
		pings := func(n int) []byte { return bytes.Repeat(raw(framePing, 0, 0, 8), n) }
		idle := connect(t, g)
		if err := idle.receive(pings(startCredit - 1)); err != nil {
			t.Fatal(err)
		}
		var through atomic.Int64
		var wg sync.WaitGroup
		for range floods {
			s := connect(t, g)
			if err := s.receive(pings(startCredit - 1)); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				for range seconds {
					time.Sleep(time.Second)
					if s.receive(pings(each)) != nil {
						return
					}
					through.Add(each)
				}
			})
		}
		began := time.Now()
		for range 2 * seconds {
			time.Sleep(time.Second)
			if err := idle.receive(pings(1)); err != nil {
				t.Fatalf("who sends a PING each second: %v, want nothing", err)
			}
		}
		wg.Wait()
		// Each has a few more before it is closed.
		if most := int64(burst + perSecond*time.Since(began).Seconds()/2); through.Load() > most {
			t.Errorf("%d frames of %d are through in %ds, want %d at most", through.Load(), floods*seconds*each, seconds, most)
		}
		if g.Counts().Closed == 0 {
			t.Error("nobody was closed")
		}
	})
}

// A member passes on what its clients do, their resets, too: it waits, but is not
// closed for them.
func TestMembersAreNotClosed(t *testing.T) {
	for member, want := range map[bool]error{true: nil, false: ErrFlood} {
		synctest.Test(t, func(t *testing.T) {
			w, g := &wire{}, New(quiet(), 1<<20)
			s := &session{t: t, wire: w, c: g.Conn(w, func() bool { return member }), meter: g}
			if err := s.receive(flood.Hello()); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var err error
			for id := uint32(1); err == nil && id < 20_000; id += 2 {
				err = s.receive(append(request(id), reset(id)...))
			}
			if !errors.Is(err, want) {
				t.Errorf("a flood by a member (%v): %v, want %v", member, err, want)
			}
			if member && time.Since(began) < time.Second {
				t.Errorf("10,000 resets of a member are through after %v, want some wait", time.Since(began))
			}
		})
	}
}

// A handler that ends a stream first makes gRPC send a reset with no error: that
// the client has not ended its half is not its fault.
func TestStreamsThatTheServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connect(t, New(quiet(), 1<<20))
		for id := uint32(1); id < 10_000; id += 2 {
			if err := s.receive(append(flood.Open(nil, id, method), raw(frameData, 0, id, 8)...)); err != nil {
				t.Fatalf("after stream %d: %v", id, err)
			}
			s.send(raw(frameHeaders, 4|flagEndStream, id, 24), raw(frameReset, 0, id, 4, 0, 0, 0, codeNone))
		}
	})
}

// While nobody is answered, deadlines however short close nobody. When others are,
// who goes on resetting young streams is closed.
func TestAServerThatAnswersNobodyClosesNobody(t *testing.T) {
	for _, perSecond := range []int{100, 500, 2_000} {
		synctest.Test(t, func(t *testing.T) {
			g := New(quiet(), 1<<20)
			s, other := connect(t, g), connect(t, g)
			s.alone = true
			other.send(answer(1)) // before the member stalls
			id := uint32(1)
			impatient := func() (err error) {
				for end := id + 2*3_000; err == nil && id < end; id += 2 {
					if err = s.receive(request(id)); err == nil {
						time.Sleep(time.Second / time.Duration(perSecond))
						err = s.receive(reset(id))
					}
				}
				return err
			}
			if err := impatient(); err != nil {
				t.Errorf("%d unanswered requests a second: %v, want nothing", perSecond, err)
			}
			var stop atomic.Bool
			var wg sync.WaitGroup
			wg.Go(func() {
				for !stop.Load() {
					other.send(answer(3))
					time.Sleep(100 * time.Millisecond)
				}
			})
			if err := impatient(); !errors.Is(err, ErrFlood) {
				t.Errorf("%d a second while others are answered: %v, want ErrFlood", perSecond, err)
			}
			stop.Store(true)
			wg.Wait()
		})
	}
}
