package explore

import "hash/maphash"

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
