package explore

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cups holds two cups that differ by their names only, of size 5; each step fills,
// empties or pours one.
type cups struct {
	want uint8 // Bad is a cup with so much in it
}

func (c *cups) Start(yield func([]byte)) { yield([]byte{0, 0}) }

func (c *cups) Canonical(state []byte) []byte {
	out := slices.Clone(state)
	slices.Sort(out)
	return out
}

func (c *cups) Expand(state []byte, plain bool, yield func(Step, []byte, Marks)) {
	for i := range uint8(2) {
		for kind, amount := range []uint8{1, 2, 7} {
			next := slices.Clone(state)
			next[i] = (next[i] + amount) % 8
			var marks Marks
			if next[i] == c.want {
				marks = Bad
			}
			if next[0] == next[1] {
				marks |= 1
			}
			if !plain {
				next = c.Canonical(next)
			}
			yield(Step{Kind: uint8(kind), A: i}, next, marks)
		}
	}
}

func (c *cups) Describe(state []byte, s Step, next []byte) string {
	return fmt.Sprintf("%v %v %v %v", state, s.Kind, s.A, next)
}

func TestSearchIsExhaustive(t *testing.T) {
	r := Search(&cups{want: 99}, Limits{})
	// Pairs of 8 amounts without order.
	if !r.Exhausted || r.States != 36 || r.Steps != 36*6 || r.Path != nil {
		t.Errorf("Search() = %+v, want all 36 states and none bad", r)
	}
	if r.Reached[0] != 1+2 {
		t.Errorf("goal reached at level %d, want 2", r.Reached[0]-1)
	}
}

func TestSearchFindsTheShortestWay(t *testing.T) {
	r := Search(&cups{want: 5}, Limits{})
	if len(r.Path) != 3 || r.Bad != 3 {
		t.Errorf("path %v, want 3 steps: 2+2+1, or back from 8 by 1 three times", r.Path)
	}
	if len(r.Trace) != len(r.Path) || !slices.Contains(r.Last, 5) {
		t.Errorf("trace %q to %v does not end with a cup of 5", r.Trace, r.Last)
	}
}

func TestSearchKeepsItsLimits(t *testing.T) {
	if r := Search(&cups{want: 99}, Limits{States: 10}); r.Exhausted || r.States != 10 {
		t.Errorf("10 states: %+v", r)
	}
	if r := Search(&cups{want: 99}, Limits{Depth: 2}); r.Exhausted || r.Depth != 2 {
		t.Errorf("depth 2: %+v", r)
	}
	if r := Search(&cups{want: 99}, Limits{States: 36}); !r.Exhausted {
		t.Errorf("36 states, which are all: %+v", r)
	}
}

// A set that has grown still knows what it was given.
func TestSetGrows(t *testing.T) {
	s := newSet()
	const n = 3 * chunk
	for i := range uint64(n) {
		if !s.add(key{i * 0x9e3779b97f4a7c15, i}, uint32(i)/2) {
			t.Fatalf("%d is taken for another", i)
		}
	}
	for i := range uint64(n) {
		if k := (key{i * 0x9e3779b97f4a7c15, i}); !s.has(k) || s.add(k, 0) || s.at(uint32(i)) != k || s.parent(uint32(i)) != uint32(i)/2 {
			t.Fatalf("%d is lost", i)
		}
	}
	if s.has(key{1, 1}) || s.n != n {
		t.Errorf("%d keys, want %d", s.n, n)
	}
}
