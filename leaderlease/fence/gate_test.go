package fence_test

import (
	"errors"
	"math"
	"strings"
	"testing"

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
