package core

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/leaderlease/go/leaderlease/internal/explore"
)

// A field that is added to Guard or Lease must be packed, or have no say in what is
// searched.
func TestExplorerKnowsEveryField(t *testing.T) {
	for of, want := range map[reflect.Type]string{
		reflect.TypeFor[Guard](): "maxPromise incarnation saved hold holdFor term promise owed release dead",
		reflect.TypeFor[Lease](): "p voters voter term ownCommit after probed shift steps transferUntil clockFault stepped " +
			"closed disabled hold confPending diskStalled peers outvoted end",
		reflect.TypeFor[peer]():  "id promised last rate",
		reflect.TypeFor[saved](): "limit longest",
	} {
		var fields []byte
		for f := range of.Fields() {
			fields = append(append(fields, f.Name...), ' ')
		}
		if got := string(bytes.TrimSpace(fields)); got != want {
			t.Errorf("%v has the fields %q, and the explorer packs or projects out %q", of, got, want)
		}
	}
}

// wander takes steps at random and shows each state.
func wander(t *testing.T, b *bounds, steps int, show func(m *stages, state []byte)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	m := newStages(b)
	walks := 8
	if shortened() {
		walks = 1
	}
	for range walks {
		var at []byte
		m.Start(func(state []byte) { at = bytes.Clone(state) })
		for range steps {
			show(m, at)
			var all [][]byte
			m.Expand(at, true, func(_ explore.Step, next []byte, _ explore.Marks) { all = append(all, bytes.Clone(next)) })
			if len(all) == 0 {
				break
			}
			at = all[rng.IntN(len(all))]
		}
	}
}

// What is packed is all there is: it is the same again after unpacking.
func TestExplorerPacksEverything(t *testing.T) {
	for i := range searches {
		b := searches[i]
		wander(t, &b, 60, func(m *stages, state []byte) {
			m.other.unpack(state)
			if got := m.other.pack(nil, m.orders[0]); !bytes.Equal(got, state) {
				t.Fatalf("%s: packed anew\n%v, want\n%v", b.name, got, state)
			}
		})
	}
}

// States that differ by names only are one, and so are those they lead to.
func TestExplorerForgetsNames(t *testing.T) {
	for i := range searches {
		b := searches[i]
		wander(t, &b, 25, func(m *stages, state []byte) {
			want := bytes.Clone(m.Canonical(state))
			o := m.orders[len(state)%len(m.orders)]
			m.other.unpack(state)
			renamed := m.other.pack(nil, o)
			if got := m.Canonical(renamed); !bytes.Equal(got, want) {
				t.Fatalf("%s: renamed by %v the least form is\n%v, want\n%v", b.name, o, got, want)
			}
			if !slices.Equal(m.successors(state, nil), m.successors(renamed, nil)) {
				t.Fatalf("%s: renamed by %v it leads elsewhere", b.name, o)
			}
		})
	}
}

// Moving instants together changes nothing: what a state leads to is the same
// whether it was settled before or not.
func TestExplorerMovesInstantsRightly(t *testing.T) {
	for i := range searches {
		b := searches[i]
		b.apart = true // left as they are
		// A clock that begins anew, or goes back, does so to where the least form says.
		b.budget.crashes, b.budget.backs, b.opening = 0, 0, nil
		settled := b
		settled.apart = false
		m := newStages(&settled)
		wander(t, &b, 30, func(_ *stages, state []byte) {
			m.other.unpack(state)
			m.other.settle()
			together := m.other.pack(nil, m.orders[0])
			apart := newStages(&b)
			if !slices.Equal(m.successors(together, nil), apart.successors(state, m)) {
				t.Fatalf("%s: settled, it leads elsewhere", b.name)
			}
		})
	}
}

// successors returns the least forms of all states that state leads to, settled by
// as, with what is bad marked.
func (m *stages) successors(state []byte, as *stages) (all []string) {
	m.Expand(state, true, func(_ explore.Step, next []byte, marks explore.Marks) {
		c := bytes.Clone(next)
		if as != nil {
			as.other.unpack(c)
			as.other.settle()
			c = as.other.pack(nil, as.orders[0])
		} else {
			as = m
		}
		form := bytes.Clone(as.Canonical(c))
		if as == m {
			as = nil
		}
		if marks&explore.Bad != 0 {
			form = append(form, 'B')
		}
		all = append(all, string(form))
	})
	slices.Sort(all)
	return slices.Compact(all)
}
