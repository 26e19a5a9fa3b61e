package connlimit

import "encoding/binary"

// Types of frames and flags (RFC 9113, section 6).
const (
	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3

	flagEndStream = 0x1
	flagPadded    = 0x8
)

const (
	headerLen  = 9
	prefaceLen = 24 // of the text with which a client begins
)

// frame is the header of a frame.
type frame struct {
	kind, flags byte
	length      int
	stream      uint32
}

// scanner finds the frame headers in one direction of a connection. It keeps a
// header that a read or a write has split.
type scanner struct {
	skip int // bytes of payload that are still to come
	have int
	head [headerLen]byte
}

// next returns the next frame of p and what comes after its header. It returns
// false if p ends before the header does.
func (s *scanner) next(p []byte) (f frame, rest []byte, ok bool) {
	n := min(s.skip, len(p))
	s.skip, p = s.skip-n, p[n:]
	if s.have == 0 && len(p) >= headerLen { // the common case copies nothing
		f = parse(p)
		s.skip = f.length
		return f, p[headerLen:], true
	}
	n = copy(s.head[s.have:], p)
	if s.have += n; s.have < headerLen {
		return frame{}, nil, false
	}
	f = parse(s.head[:])
	s.have, s.skip = 0, f.length
	return f, p[n:], true
}

func parse(p []byte) frame {
	return frame{
		length: int(p[0])<<16 | int(p[1])<<8 | int(p[2]),
		kind:   p[3], flags: p[4],
		stream: binary.BigEndian.Uint32(p[5:]) &^ (1 << 31),
	}
}
