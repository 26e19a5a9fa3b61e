package raftwal

// place is where a record is.
type place struct{ segment, offset uint32 }

// slot is what is kept in memory of each entry.
type slot struct {
	place
	term uint64
}

// chunkLen is how many slots are allocated at once. A slice that doubled would
// copy megabytes within one Save.
const chunkLen = 4096

// slots is a queue of slots that grows and shrinks at its end and shrinks at
// its beginning, in constant time.
type slots struct {
	chunks []*[chunkLen]slot
	head   int // slots of the first chunk that are gone
	n      int
	// free are chunks for the next ones, so that a log that is compacted as fast
	// as it grows allocates none.
	free []*[chunkLen]slot
}

// maxFree bounds free to 4 MiB.
const maxFree = 64

func (s *slots) len() int { return s.n }

func (s *slots) at(i uint64) slot {
	i += uint64(s.head)
	return s.chunks[i/chunkLen][i%chunkLen]
}

func (s *slots) push(v slot) {
	end := s.head + s.n
	if end == len(s.chunks)*chunkLen {
		s.chunks = append(s.chunks, s.chunk())
	}
	s.chunks[end/chunkLen][end%chunkLen] = v
	s.n++
}

// truncate keeps the first n.
func (s *slots) truncate(n uint64) {
	s.n = int(n)
	keep := (s.head + s.n + chunkLen - 1) / chunkLen
	s.release(s.chunks[keep:])
	s.chunks = s.chunks[:keep]
}

// drop forgets the first n.
func (s *slots) drop(n uint64) {
	s.head += int(n)
	s.n -= int(n)
	gone := s.head / chunkLen
	if gone == 0 {
		return
	}
	s.release(s.chunks[:gone])
	left := copy(s.chunks, s.chunks[gone:])
	clear(s.chunks[left:])
	s.chunks = s.chunks[:left]
	s.head %= chunkLen
}

func (s *slots) chunk() *[chunkLen]slot {
	last := len(s.free) - 1
	if last < 0 {
		return new([chunkLen]slot)
	}
	c := s.free[last]
	s.free = s.free[:last]
	return c
}

func (s *slots) release(chunks []*[chunkLen]slot) {
	for i, c := range chunks {
		if len(s.free) < maxFree {
			s.free = append(s.free, c)
		}
		chunks[i] = nil
	}
}

// appendTo appends the slots in [lo, hi) to out.
func (s *slots) appendTo(out []slot, lo, hi uint64) []slot {
	for i := lo; i < hi; i++ {
		out = append(out, s.at(i))
	}
	return out
}
