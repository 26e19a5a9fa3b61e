package fence_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/leaderlease/go/leaderlease/fence"
)

func TestGateBoundaries(t *testing.T) {
	highest := fence.Token{Term: 5, Index: 100}
	tests := []struct {
		name  string
		token fence.Token
		want  error
	}{
		{"zero is never admitted", fence.Token{}, fence.ErrZeroToken},
		{"older term, however high its index", fence.Token{Term: 4, Index: math.MaxUint64}, fence.ErrStale},
		{"no term at all", fence.Token{Index: math.MaxUint64}, fence.ErrStale},
		{"same term, one index below", fence.Token{Term: 5, Index: 99}, fence.ErrStale},
		{"the same holder writes again", highest, nil},
		{"same term, one index above", fence.Token{Term: 5, Index: 101}, nil},
		{"newer term, however low its index", fence.Token{Term: 6}, nil},
		{"the largest token", fence.Token{Term: math.MaxUint64, Index: math.MaxUint64}, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			admit, do := fence.NewGate(highest), fence.NewGate(highest)
			ran := false
			for call, err := range map[string]error{
				"Check": fence.Check(tc.token, highest),
				"Admit": admit.Admit(tc.token),
				"Do":    do.Do(tc.token, func() error { ran = true; return nil }),
			} {
				if !errors.Is(err, tc.want) {
					t.Errorf("%s(%v) = %v, want %v", call, tc.token, err, tc.want)
				}
				if stale, ok := errors.AsType[*fence.StaleError](err); ok && *stale != (fence.StaleError{Token: tc.token, Highest: highest}) {
					t.Errorf("%s(%v) = %+v, want both tokens in the error", call, tc.token, stale)
				}
			}
			want := highest
			if tc.want == nil {
				want = tc.token
			}
			for call, got := range map[string]fence.Token{"Admit": admit.Highest(), "Do": do.Highest()} {
				if got != want {
					t.Errorf("Highest() after %s(%v) = %v, want %v", call, tc.token, got, want)
				}
			}
			if ran != (tc.want == nil) {
				t.Errorf("Do(%v) ran the write: %v, want %v", tc.token, ran, tc.want == nil)
			}
		})
	}
}

func TestZeroGate(t *testing.T) {
	var g fence.Gate
	if got := g.Highest(); !got.IsZero() {
		t.Errorf("Highest() of the zero Gate = %v, want 0.0", got)
	}
	if err := g.Admit(fence.Token{}); !errors.Is(err, fence.ErrZeroToken) || errors.Is(err, fence.ErrStale) {
		t.Errorf("Admit(zero) on the zero Gate = %v, want ErrZeroToken alone", err)
	}
	if err := g.Admit(fence.Token{Index: 1}); err != nil {
		t.Errorf("Admit(0.1) on the zero Gate = %v, want nil", err)
	}
}

func TestStaleErrorNamesBothTokens(t *testing.T) {
	err := fence.Check(fence.Token{Term: 4, Index: 120}, fence.Token{Term: 5, Index: 133})
	for _, want := range []string{"stale", "4.120", "5.133"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Check() = %q, want it to say %q", err, want)
		}
	}
}

// A write that failed may have reached the resource in part, so the older
// holder stays out.
func TestFailedWriteLeavesTheTokenAdmitted(t *testing.T) {
	var g fence.Gate
	older, newer := fence.Token{Term: 1, Index: 1}, fence.Token{Term: 2, Index: 1}

	failure := errors.New("disk full")
	if err := g.Do(newer, func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("Do() = %v, want the error of the write", err)
	}
	if err := g.Admit(older); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Admit(%v) after a failed write under %v = %v, want ErrStale", older, newer, err)
	}
}

func TestPanickingWriteReleasesTheGate(t *testing.T) {
	var g fence.Gate
	tok := fence.Token{Term: 1, Index: 1}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Do() swallowed the panic of the write")
			}
		}()
		_ = g.Do(tok, func() error { panic("write") })
	}()
	if err := g.Admit(tok); err != nil {
		t.Errorf("Admit(%v) after a panic = %v, want nil", tok, err)
	}
	if got := g.Highest(); got != tok {
		t.Errorf("Highest() after a panic = %v, want %v", got, tok)
	}
}

type admitter interface {
	Admit(t fence.Token) error
}

// violation plays tokens to a gate and returns the first one that it should
// have decided otherwise. The model is the sentence of the contract: a token
// passes iff it is not zero and not below any token that passed before.
func violation(g admitter, tokens []fence.Token) error {
	var passed []fence.Token
	for i, tok := range tokens {
		want := !tok.IsZero()
		for _, p := range passed {
			want = want && !tok.Less(p)
		}
		err := g.Admit(tok)
		if (err == nil) != want {
			return fmt.Errorf("step %d: Admit(%v) = %w after %v had passed, want pass %v", i, tok, err, passed, want)
		}
		if err == nil {
			passed = append(passed, tok)
		}
	}
	return nil
}

// fewTokens is dense, so that equal tokens, equal terms and steps back are
// common.
var fewTokens = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fence.Token {
	number := rapid.Uint64Range(0, 3)
	return fence.Token{Term: number.Draw(t, "term"), Index: number.Draw(t, "index")}
}), 0, 30)

func TestGateNeverAdmitsBelowWhatItAdmitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := violation(new(fence.Gate), fewTokens.Draw(t, "tokens")); err != nil {
			t.Fatal(err)
		}
	})
}

// brokenGate admits by a wrong rule, and always remembers what it admitted.
type brokenGate struct {
	highest fence.Token
	passes  func(t, highest fence.Token) bool
}

func (g *brokenGate) Admit(t fence.Token) error {
	if !g.passes(t, g.highest) {
		return fence.ErrStale
	}
	g.highest = t
	return nil
}

// Negative control: every gate with a fault must be found out within 100
// draws, or the property above proves nothing.
func TestThePropertyFindsBrokenGates(t *testing.T) {
	faults := map[string]func(t, highest fence.Token) bool{
		"admits everything":       func(fence.Token, fence.Token) bool { return true },
		"refuses everything":      func(fence.Token, fence.Token) bool { return false },
		"admits zero at first":    func(t, h fence.Token) bool { return !t.Less(h) },
		"refuses the same holder": func(t, h fence.Token) bool { return h.Less(t) },
		"compares the index only": func(t, h fence.Token) bool { return !t.IsZero() && t.Index >= h.Index },
		"compares the term only":  func(t, h fence.Token) bool { return !t.IsZero() && t.Term >= h.Term },
		"compares part by part": func(t, h fence.Token) bool {
			return !t.IsZero() && t.Term >= h.Term && t.Index >= h.Index
		},
	}
	for name, passes := range faults {
		t.Run(name, func(t *testing.T) {
			for seed := range 100 {
				if err := violation(&brokenGate{passes: passes}, fewTokens.Example(seed)); err != nil {
					t.Logf("found with seed %d: %v", seed, err)
					return
				}
			}
			t.Error("the property holds for a broken gate")
		})
	}
}

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
