package floodgate

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/flood"
)

// What looks like what honest clients send, and is not, is counted all the same.
func TestFloodsInDisguise(t *testing.T) {
	settings := bytes.Repeat([]byte{0, 4, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0}, 5)
	for name, one := range map[string]struct {
		streams int // that are open and half a second old
		what    []byte
		most    int // frames until it is closed
	}{
		"resets of one old stream":           {1, reset(1), maxDebt + startCredit + 5},
		"ends of one stream":                 {1, raw(frameData, flagEndStream, 1, 1), maxDebt + startCredit + 5},
		"long ends of one stream":            {1, raw(frameData, flagEndStream, 1, crumbLen-1), maxDebt + startCredit + 5},
		"DATA of padding alone":              {1, raw(frameData, flagPadded, 1, 256, 255), maxDebt + startCredit + 5},
		"crumbs with padding":                {1, raw(frameData, flagPadded, 1, 256+crumbLen-1, 255), crumbsPerFrame * (maxDebt + startCredit + 5)},
		"settings that concern many streams": {10_000, raw(frameSettings, 0, 0, len(settings), settings...), 15},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := connect(t, New(quiet(), 1<<20))
				for id := range uint32(one.streams) {
					if err := s.receive(request(2*id + 1)[:len(request(1))-headerLen-8]); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(young)
				var err error
				n := 0
				for ; err == nil && n < 30_000; n++ {
					err = s.receive(slices.Clone(one.what))
				}
				if !errors.Is(err, ErrFlood) || n > one.most {
					t.Errorf("after %d frames: %v, want ErrFlood within %d", n, err, one.most)
				}
			})
		})
	}
}

// Settings that keep gRPC busy for seconds are no member's, and no deadline's.
func TestSettingsForManyStreams(t *testing.T) {
	for name, member := range map[string]bool{"a member": true, "nobody is answered": false} {
		synctest.Test(t, func(t *testing.T) {
			w, g := &wire{}, New(quiet(), 1<<20)
			s := &session{t: t, wire: w, c: g.Conn(w, func() bool { return member }), meter: g, alone: true}
			if err := s.receive(flood.Hello()); err != nil {
				t.Fatal(err)
			}
			for id := range uint32(10_000) {
				if err := s.receive(request(2*id + 1)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * muteTime)
			if err := s.receive(raw(frameSettings, 0, 0, 6)); err != nil {
				t.Errorf("%s, one setting: %v", name, err)
			}
			if err := s.receive(raw(frameSettings, 0, 0, 16<<10-4)); !errors.Is(err, ErrFlood) {
				t.Errorf("%s, 2,730 settings: %v, want ErrFlood", name, err)
			}
		})
	}
}

// What acknowledges the server's settings keeps nothing busy, however many streams wait.
func TestSettingsOfTheServerMayBeAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connect(t, New(quiet(), 1<<20))
		for id := range uint32(20_000) {
			if err := s.receive(request(2*id + 1)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 8 { // gRPC doubles its window as often, from 64 KiB
			s.send(raw(frameSettings, 0, 0, 6))
			if err := s.receive(raw(frameSettings, flagAck, 0, 0)); err != nil {
				t.Fatalf("acknowledgement %d: %v", i+1, err)
			}
		}
	})
}

// slow is a wire on which each write takes a while.
type slow struct{ wire }

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(maxStuck / 2)
	return len(p), nil
}

// Who is never stuck, but takes its answers slowly and leaves what it has asked, has no
// more asked than is written, for gRPC keeps the answers. Who leaves nothing, or takes
// what there is, asks on.
func TestWhoLeavesAnswersAsksNoFaster(t *testing.T) {
	const (
		seconds = 10
		each    = time.Second / 500
		open    = uint32(2 * young / each)
		asked   = seconds * 500
		wrote   = int(seconds*time.Second/(maxStuck/2)) * (16 << 10)
		paced   = wrote/perLeft + maxLeft + int(open)
	)
	for name, one := range map[string]struct {
		resets      bool
		pause       time.Duration // between writes
		least, most int
	}{
		"leaves":                {true, 0, paced * 4 / 5, paced * 11 / 10},
		"waits":                 {false, 0, asked, asked},
		"leaves and catches up": {true, 2 * pause, asked * 9 / 10, asked},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, g := &slow{}, New(quiet(), 1<<20)
				s := &session{t: t, wire: &w.wire, meter: g, c: g.Conn(w, stranger)}
				if err := s.receive(flood.Hello()); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer stop()
				wg.Go(func() {
					for ctx.Err() == nil {
						_, _ = s.c.Write(raw(frameData, 0, 1, 16<<10-headerLen))
						time.Sleep(one.pause)
					}
				})
				began, n := time.Now(), uint32(0)
				for ; n < asked && time.Since(began) < seconds*time.Second; n++ {
					err := s.receive(request(2*n + 1))
					if err == nil && one.resets && n >= open {
						err = s.receive(reset(2*(n-open) + 1))
					}
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(each)
				}
				if int(n) < one.least || int(n) > one.most {
					t.Errorf("%d of %d requests are handed on, want %d to %d", n, asked, one.least, one.most)
				}
			})
		})
	}
}
