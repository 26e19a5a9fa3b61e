package floodgate

import (
	"encoding/binary"
	"fmt"
)

// Types of frames and flags (RFC 9113, section 6).
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	framePriority     = 0x2
	frameReset        = 0x3
	frameSettings     = 0x4
	framePing         = 0x6
	frameWindowUpdate = 0x8
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagAck        = 0x1 // of SETTINGS and PING
	flagPadded     = 0x8
	flagEndHeaders = 0x4

	// What a server resets a stream with that has had its trailers, and one whose
	// time is over.
	codeNone   = 0x0
	codeCancel = 0x8
)

const (
	headerLen  = 9
	resetLen   = headerLen + 4
	prefaceLen = 24 // of the text that clients begin with
)

var names = map[byte]string{
	frameData: "DATA", frameHeaders: "HEADERS", framePriority: "PRIORITY", frameReset: "RST_STREAM", frameSettings: "SETTINGS",
	framePing: "PING", frameWindowUpdate: "WINDOW_UPDATE", frameContinuation: "CONTINUATION",
}

func name(kind byte) string {
	if s, ok := names[kind]; ok {
		return s
	}
	return fmt.Sprintf("%#x", kind)
}

// frame is the header of a frame, and of RST_STREAM its code.
type frame struct {
	kind, flags byte
	length      int
	stream      uint32
	code        uint32
}

// scanner finds the frames in one direction of a connection. It keeps what is
// between two calls in a few bytes.
type scanner struct {
	skip int // bytes that are not a header
	have int
	head [resetLen]byte
}

// next returns the next frame of p and what comes after its header, false if p
// ends before there is one.
func (s *scanner) next(p []byte) (f frame, rest []byte, ok bool) {
	n := min(s.skip, len(p))
	s.skip, p = s.skip-n, p[n:]
	if s.have == 0 && len(p) >= resetLen { // nearly always
		f, n = parse(p)
		s.skip = f.length - (n - headerLen)
		return f, p[n:], true
	}
	for want := headerLen; ; want = resetLen {
		if s.have < want {
			n = copy(s.head[s.have:want], p)
			s.have, p = s.have+n, p[n:]
		}
		if s.have < want {
			return frame{}, nil, false
		}
		if f, n = parse(s.head[:s.have]); n <= s.have {
			s.have, s.skip = 0, f.length-(n-headerLen)
			return f, p, true
		}
	}
}

// parse returns the frame that p begins with, and how long its header is, with the
// code of a reset. The frame has no code if p is not as long.
func parse(p []byte) (f frame, n int) {
	f = frame{
		length: int(p[0])<<16 | int(p[1])<<8 | int(p[2]),
		kind:   p[3], flags: p[4],
		stream: binary.BigEndian.Uint32(p[5:]) &^ (1 << 31),
	}
	if f.kind != frameReset || f.length < resetLen-headerLen {
		return f, headerLen
	}
	if len(p) >= resetLen {
		f.code = binary.BigEndian.Uint32(p[headerLen:])
	}
	return f, resetLen
}
