package fence_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/leaderlease/go/leaderlease/fence"
)

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
