package explore

import (
	"bytes"
	"math/bits"
	"slices"
	"time"
)

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
