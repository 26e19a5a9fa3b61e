package store

import "sync"

// slab is memory for the records of one commit, which the next commit uses again. Without
// it a sixth of what a load allocates would be records that live for one commit, and the
// collector would come sooner by as much.
type slab struct {
	chunks [][]byte
	used   int // chunks that are full
}

// chunkSize divides cutBytes, so that a commit of one cut wastes little.
const chunkSize = cutBytes / 4

// slabs are those that no commit uses. The collector takes them, so a store at rest has none.
var slabs = sync.Pool{New: func() any { return new(slab) }}

// takeSlab returns an empty slab.
func takeSlab() *slab {
	s, _ := slabs.Get().(*slab)
	return s
}

// release gives the slab back. Nobody may use what room has returned any more.
func (s *slab) release() {
	s.used = 0
	for i := range s.chunks {
		s.chunks[i] = s.chunks[i][:0]
	}
	slabs.Put(s)
}

// room returns an empty slice for n bytes. What is in them is what an earlier commit has left.
func (s *slab) room(n int) []byte {
	if n > chunkSize/4 {
		return make([]byte, 0, n) // it would waste what is left of a chunk
	}
	if s.used < len(s.chunks) && cap(s.chunks[s.used])-len(s.chunks[s.used]) < n {
		s.used++
	}
	if s.used == len(s.chunks) {
		s.chunks = append(s.chunks, make([]byte, 0, chunkSize))
	}
	c := &s.chunks[s.used]
	begin := len(*c)
	*c = (*c)[:begin+n]
	return (*c)[begin : begin : begin+n]
}
