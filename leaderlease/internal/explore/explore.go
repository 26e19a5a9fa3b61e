// Package explore searches every state that a model can reach, breadth first, so
// that what it finds first is found by the fewest steps.
//
// A model packs its states into bytes, in one form for all states that differ by
// the names of their nodes only. A state that was seen is kept as a 128-bit hash
// and the number of the state it came from, which is enough to tell how it is
// reached: the steps are taken once more, and those with matching hashes kept. Two
// states with one hash would be taken for one; with 10^8 states that happens once
// in 10^22 searches.
package explore

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"slices"
	"time"
)

// Step is one step of a model: its kind, and what it is about.
type Step struct{ Kind, A, B, C uint8 }

// Marks are what a model has to say about a state, or the step that led to it: the
// goals that it reaches, a bit each, and Bad.
type Marks uint64

// Bad marks a state that must not be reached.
const Bad Marks = 1 << 63

// Model is what is searched. Its slices are its own and change with the next call.
type Model interface {
	// Start yields the states that a search begins with, as they are.
	Start(yield func(state []byte))
	// Expand yields the successors of state, as they are if plain, and else in the
	// form that is one for all states that are the same but for names.
	Expand(state []byte, plain bool, yield func(Step, []byte, Marks))
	// Canonical returns that form of a state that is as it is.
	Canonical(state []byte) []byte
	// Describe says in words what a step does, from one state to the next.
	Describe(state []byte, s Step, next []byte) string
}

// Limits end a search early. Zero is no limit.
type Limits struct {
	// States is how many states are kept; one more ends the search.
	States int
	// Depth is how many steps are taken.
	Depth int
	// Progress is told of each level.
	Progress func(*Result)
}

// Result is what a search has found.
type Result struct {
	States, Steps int
	// Depth is the number of steps up to which all states were expanded.
	Depth int
	// Exhausted: no state was left out, so there are no others within the bounds.
	Exhausted bool
	Elapsed   time.Duration
	// Bytes is what the seen states take, without the two levels that are searched.
	Bytes int
	// Level is the number of states of the newest level.
	Level int
	// Reached is, for each goal, one more than the level that first reached it.
	Reached [64]int
	// Fired counts the steps of each kind.
	Fired [256]int
	// Bad is how many steps lead to a bad state, 0 if none was found.
	Bad int
	// Trace tells these steps, Path has them, and Last is the bad state. They are not
	// there if the model tells its nodes apart, so that states that should be the
	// same but for names are not.
	Trace []string
	Path  []Step
	Last  []byte
}

// search is one search under way.
type search struct {
	m    Model
	lim  Limits
	seen *set
	// next is the level that is being found.
	next level
	r    Result
	full bool
}

// level holds the states of one level, of which the first has the number first.
type level struct {
	first  uint32
	size   int
	chunks [][]byte
}

func (l *level) add(state []byte) {
	l.size = len(state)
	last := len(l.chunks) - 1
	if last < 0 || len(l.chunks[last])+len(state) > cap(l.chunks[last]) {
		l.chunks = append(l.chunks, make([]byte, 0, chunk/len(state)*len(state)))
		last++
	}
	l.chunks[last] = append(l.chunks[last], state...)
}

// Search looks at every state of m that can be reached within the limits, nearest
// first, up to the first that is bad. All states have one length.
func Search(m Model, lim Limits) Result {
	s := &search{m: m, lim: lim, seen: newSet()}
	begun := time.Now()
	m.Start(func(state []byte) {
		s.keep(m.Canonical(state), none, 0)
	})
	for more := true; more; {
		more = s.level()
		s.r.Elapsed = time.Since(begun)
		if lim.Progress != nil {
			lim.Progress(&s.r)
		}
	}
	return s.r
}

// level expands the newest level and reports whether the search goes on.
func (s *search) level() bool {
	here := s.next
	s.r.Level = s.seen.n - int(here.first)
	s.r.Exhausted = s.r.Level == 0
	if s.r.Level == 0 || (s.lim.Depth > 0 && s.r.Depth == s.lim.Depth) {
		return false
	}
	s.next = level{first: uint32(s.seen.n)}
	n := here.first
	for at, c := range here.chunks {
		for state := range slices.Chunk(c, here.size) {
			if !s.expand(state, n) || s.full {
				return false
			}
			n++
		}
		here.chunks[at] = nil
	}
	s.r.Depth++
	return true
}

// expand reports whether no successor of state is bad.
func (s *search) expand(state []byte, n uint32) bool {
	var bad key
	ok := true
	s.m.Expand(state, false, func(step Step, next []byte, marks Marks) {
		if !ok {
			return
		}
		s.r.Steps++
		s.r.Fired[step.Kind]++
		s.keep(next, n, marks)
		if marks&Bad != 0 {
			bad, ok = s.seen.hash(next), false
		}
	})
	if !ok {
		s.trace(n, bad)
	}
	return ok
}

// keep keeps a state if it is new.
func (s *search) keep(state []byte, parent uint32, marks Marks) {
	for m := marks; m != 0; m &= m - 1 {
		if goal := bits.TrailingZeros64(uint64(m)); s.r.Reached[goal] == 0 {
			s.r.Reached[goal] = s.r.Depth + 2
		}
	}
	k := s.seen.hash(state)
	if s.lim.States > 0 && s.seen.n >= s.lim.States {
		s.full = s.full || !s.seen.has(k)
		return
	}
	if s.seen.add(k, parent) {
		s.next.add(state)
		s.r.States, s.r.Bytes = s.seen.n, s.seen.bytes()
	}
}

// trace takes the steps to state n, and from there to the one with key bad.
func (s *search) trace(n uint32, bad key) {
	keys := []key{bad}
	for ; n != none; n = s.seen.parent(n) {
		keys = append(keys, s.seen.at(n))
	}
	slices.Reverse(keys)
	s.r.Bad = len(keys) - 1
	var at []byte
	s.m.Start(func(state []byte) {
		if at == nil && s.key(state) == keys[0] {
			at = bytes.Clone(state)
		}
	})
	for _, k := range keys[1:] {
		var taken Step
		var next []byte
		s.m.Expand(bytes.Clone(at), true, func(step Step, state []byte, _ Marks) {
			if next == nil {
				if c := bytes.Clone(state); s.key(c) == k {
					taken, next = step, c
				}
			}
		})
		if next == nil {
			s.r.Trace, s.r.Path = nil, nil
			return
		}
		s.r.Trace = append(s.r.Trace, s.m.Describe(at, taken, next))
		s.r.Path = append(s.r.Path, taken)
		at = next
	}
	s.r.Last = at
}

func (s *search) key(plain []byte) key { return s.seen.hash(s.m.Canonical(plain)) }

// key is a state's hash.
type key [2]uint64

// set keeps the hash of each state that was seen, and its parent. The states are
// numbered as they come.
type set struct {
	seeds [2]maphash.Seed
	// slots holds numbers, plus one, where their hashes say; its length is a power
	// of two.
	slots []uint32
	// keys and parents grow by whole chunks, so that nothing is copied.
	keys    [][]key
	parents [][]uint32
	n       int
}

const (
	chunkBits = 16
	chunk     = 1 << chunkBits
	// none is the parent of a state that a search begins with.
	none = ^uint32(0)
)

func newSet() *set {
	return &set{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, slots: make([]uint32, chunk)}
}

func (s *set) hash(state []byte) key {
	return key{maphash.Bytes(s.seeds[0], state), maphash.Bytes(s.seeds[1], state)}
}

func (s *set) at(i uint32) key { return s.keys[i>>chunkBits][i%chunk] }

func (s *set) parent(i uint32) uint32 { return s.parents[i>>chunkBits][i%chunk] }

// has reports whether k is there.
func (s *set) has(k key) bool { return s.slots[s.slot(k)] != 0 }

// slot returns where k is, or belongs.
func (s *set) slot(k key) uint64 {
	mask := uint64(len(s.slots) - 1)
	for i := k[0] & mask; ; i = (i + 1) & mask {
		if at := s.slots[i]; at == 0 || s.at(at-1) == k {
			return i
		}
	}
}

// add reports whether k is new.
func (s *set) add(k key, parent uint32) bool {
	at := s.slot(k)
	if s.slots[at] != 0 {
		return false
	}
	if s.n%chunk == 0 {
		s.keys = append(s.keys, make([]key, chunk))
		s.parents = append(s.parents, make([]uint32, chunk))
	}
	s.keys[s.n>>chunkBits][s.n%chunk] = k
	s.parents[s.n>>chunkBits][s.n%chunk] = parent
	s.n++
	s.slots[at] = uint32(s.n)
	if s.n > len(s.slots)/4*3 {
		s.grow()
	}
	return true
}

func (s *set) grow() {
	s.slots = make([]uint32, 2*len(s.slots))
	mask := uint64(len(s.slots) - 1)
	for n := range uint32(s.n) {
		i := s.at(n)[0] & mask
		for s.slots[i] != 0 {
			i = (i + 1) & mask
		}
		s.slots[i] = n + 1
	}
}

func (s *set) bytes() int { return 4*len(s.slots) + len(s.keys)*chunk*(16+4) }
