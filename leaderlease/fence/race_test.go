package fence_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/leaderlease/go/leaderlease/fence"
)

// Writes go to a plain slice: besides their order, the race detector sees any
// two that the gate lets run at once.
func TestConcurrentWritesLandInTokenOrder(t *testing.T) {
	const writers, writes = 8, 500
	var g fence.Gate
	var landed []fence.Token
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range writes {
				// Tokens rise slowly and out of step, so both answers are common.
				tok := fence.Token{Term: 1 + uint64(i)/50, Index: rng.Uint64N(100)}
				err := g.Do(tok, func() error {
					landed = append(landed, tok)
					return nil
				})
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Errorf("Do(%v) = %v, want nil or ErrStale", tok, err)
				}
				if highest := g.Highest(); err == nil && highest.Less(tok) {
					t.Errorf("Highest() = %v after Do(%v), want no less", highest, tok)
				}
			}
		})
	}
	wg.Wait()
	if !slices.IsSortedFunc(landed, fence.Token.Compare) {
		t.Errorf("writes landed out of token order: %v", landed)
	}
	if n := len(landed); n == 0 || n == writers*writes {
		t.Errorf("%d of %d writes landed, want some admitted and some refused", n, writers*writes)
	}
	if got, want := g.Highest(), landed[len(landed)-1]; got != want {
		t.Errorf("Highest() = %v, want the last that landed, %v", got, want)
	}
}

// Whether a token passed or was stale, everything below it is refused from then
// on, in every goroutine.
func TestConcurrentAdmit(t *testing.T) {
	var g fence.Gate
	var wg sync.WaitGroup
	for w := range uint64(8) {
		wg.Go(func() {
			for i := range uint64(500) {
				tok := fence.Token{Term: 1 + i, Index: 1 + w}
				if err := g.Admit(tok); err != nil && !errors.Is(err, fence.ErrStale) {
					t.Errorf("Admit(%v) = %v, want nil or ErrStale", tok, err)
				}
				if err := g.Admit(fence.Token{Term: i, Index: 1 + w}); err == nil {
					t.Errorf("Admit(%d.%d) = nil after %v was judged, want an error", i, 1+w, tok)
				}
			}
		})
	}
	wg.Wait()
	if got, want := g.Highest(), (fence.Token{Term: 500, Index: 8}); got != want {
		t.Errorf("Highest() = %v, want %v", got, want)
	}
}

// The race that Do closes: the older holder is paused after the check, and the
// newer one comes meanwhile.
func TestCheckThenWriteIsARaceAndDoIsNot(t *testing.T) {
	older, newer := fence.Token{Term: 1, Index: 1}, fence.Token{Term: 2, Index: 1}
	var landed []fence.Token
	write := func(tok fence.Token) error {
		landed = append(landed, tok)
		return nil
	}

	// Negative control: with Admit and then a write, the older write lands last.
	var open fence.Gate
	admitThenWrite := func(tok fence.Token, pause func()) {
		if err := open.Admit(tok); err != nil {
			t.Errorf("Admit(%v) = %v, want nil", tok, err)
			return
		}
		pause()
		_ = write(tok) // never fails
	}
	admitThenWrite(older, func() { admitThenWrite(newer, func() {}) })
	if want := []fence.Token{newer, older}; !slices.Equal(landed, want) {
		t.Errorf("writes after Admit landed as %v, want the accident %v", landed, want)
	}

	landed = nil
	var held fence.Gate
	var wg sync.WaitGroup
	err := held.Do(older, func() error {
		atGate := make(chan struct{})
		wg.Go(func() {
			close(atGate)
			if err := held.Do(newer, func() error { return write(newer) }); err != nil {
				t.Errorf("Do(%v) = %v, want nil", newer, err)
			}
		})
		<-atGate // the newer holder is about to ask, and has to wait
		return write(older)
	})
	wg.Wait()
	if want := []fence.Token{older, newer}; err != nil || !slices.Equal(landed, want) {
		t.Errorf("writes through Do landed as %v, %v, want %v", landed, err, want)
	}
}
