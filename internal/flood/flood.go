// Package flood is a hostile HTTP/2 client, for tests. It opens streams only to reset them, or
// sends frames that cost the server more than they cost the client.
package flood

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// Kinds of frames (RFC 9113, section 6), and flags.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	framePriority     = 0x2
	frameReset        = 0x3
	frameSettings     = 0x4
	framePing         = 0x6
	frameWindowUpdate = 0x8
	frameContinuation = 0x9

	endStream  = 0x1
	endHeaders = 0x4
	padded     = 0x8
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// batch is the number of rounds in one write.
const batch = 64

// Kind is one way to flood.
type Kind struct {
	Name string
	// round appends the frames of one round, on a new stream. Stream IDs are odd and grow.
	round func(b []byte, stream uint32, method string) []byte
}

// Kinds are all kinds of floods.
var Kinds = []Kind{
	{"reset", func(b []byte, id uint32, method string) []byte {
		b = Open(b, id, method)
		return frame(b, frameReset, 0, id, 0, 0, 0, 8)
	}},
	{"request and reset", func(b []byte, id uint32, method string) []byte {
		b = Open(b, id, method)
		b = frame(b, frameData, endStream, id, 0, 0, 0, 0, 3, 0x0a, 1, 'k') // a RangeRequest of key k
		return frame(b, frameReset, 0, id, 0, 0, 0, 8)
	}},
	{"reset by a wrong frame", func(b []byte, id uint32, method string) []byte {
		b = Open(b, id, method)
		return frame(b, frameWindowUpdate, 0, id, 0, 0, 0, 0) // the server resets the stream
	}},
	{"unknown content", func(b []byte, id uint32, _ string) []byte {
		return frame(b, frameHeaders, endHeaders|endStream, id, 0x83, 0x86, 0x84)
	}},
	{"ping", func(b []byte, _ uint32, _ string) []byte {
		return frame(b, framePing, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	}},
	{"settings", func(b []byte, _ uint32, _ string) []byte {
		return frame(b, frameSettings, 0, 0)
	}},
	{"continuation", func(b []byte, id uint32, _ string) []byte {
		if id == 1 {
			b = frame(b, frameHeaders, 0, id, 0x83) // no frame ends the headers
		}
		return frame(b, frameContinuation, 0, 1)
	}},
	{"priority", func(b []byte, _ uint32, _ string) []byte {
		return frame(b, framePriority, 0, 1, 0, 0, 0, 0, 0)
	}},
	{"window update", func(b []byte, id uint32, method string) []byte {
		if id == 1 {
			b = Open(b, id, method)
		}
		return frame(b, frameWindowUpdate, 0, 0, 0, 0, 0, 1)
	}},
	{"request", func(b []byte, id uint32, method string) []byte {
		b = Open(b, id, method)
		return frame(b, frameData, endStream, id, 0, 0, 0, 0, 3, 0x0a, 1, 'k')
	}},
	{"crumbs", func(b []byte, id uint32, method string) []byte {
		const each = 2 * 500_000
		at := id - (id-1)%each
		if at == id {
			b = Open(b, id, method)
			return frame(b, frameData, 0, id, 0, 0, 0x10, 0, 0) // announces 1 MiB, and sends nothing
		}
		return frame(b, frameData, 0, at, 0)
	}},
	{"open", Open},
	{"gets on streams", getsOnStream},
	{"ends of one stream", func(b []byte, id uint32, method string) []byte {
		if id == 1 {
			b = Open(b, id, method)
		}
		return frame(b, frameData, endStream, 1, 0)
	}},
	{"padding", func(b []byte, id uint32, method string) []byte {
		if id == 1 {
			b = Open(b, id, method)
		}
		return frame(b, frameData, padded, 1, append([]byte{255}, make([]byte, 255)...)...)
	}},
	{"empty data", func(b []byte, id uint32, method string) []byte {
		if id == 1 {
			b = Open(b, id, method)
		}
		return frame(b, frameData, 0, 1)
	}},
}

// getsPerStream is the number of gets on each stream of service Fast.
const getsPerStream = 100

// gets is one message with getsPerStream gets. Their metadata keeps the server from answering them in place.
var gets = func() (message []byte) {
	for i := range byte(getsPerStream) {
		message = append(message, 0x0a, 20, 0x08, i+1) // an ID
		message = append(message, 0x12, 5, 'R', 'a', 'n', 'g', 'e')
		message = append(message, 0x1a, 3, 0x0a, 1, 'k')      // a RangeRequest of key k
		message = append(message, 0x22, 1, 'm', 0x22, 1, 'v') // metadata
	}
	n := len(message)
	return append([]byte{0, 0, 0, byte(n >> 8), byte(n)}, message...)
}()

// getsOnStream opens a stream of service Fast with a receive window of 0, and sends gets on it.
func getsOnStream(b []byte, id uint32, _ string) []byte {
	if id == 1 {
		b = frame(b, frameSettings, 0, 0, 0, 4, 0, 0, 0, 0) // a window of 0
	}
	return frame(Open(b, id, "/leaderlease.kvnode.v1.Fast/Do"), frameData, 0, id, gets...)
}

// frame appends a frame.
func frame(b []byte, kind, flags byte, stream uint32, payload ...byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// Hello returns the preface and the settings with which a client begins.
func Hello() []byte { return frame([]byte(preface), frameSettings, 0, 0) }

// Open appends the HEADERS frame of a gRPC request.
func Open(b []byte, id uint32, method string) []byte {
	h := []byte{0x83, 0x86} // POST, http
	h = field(append(h, 0x04), method)
	h = field(append(h, 0x01), "localhost")
	h = field(append(h, 0x0f, 0x10), "application/grpc")
	h = field(field(append(h, 0), "te"), "trailers")
	return frame(b, frameHeaders, endHeaders, id, h...)
}

// Rounds appends n rounds of a flood, which begin with the stream id, and returns
// the next ID.
func (k Kind) Rounds(b []byte, id uint32, method string, n int) (flood []byte, next uint32) {
	for range n {
		b = k.round(b, id, method)
		id += 2
	}
	return b, id
}

// field appends a string that is shorter than 127 bytes.
func field(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

// Run floods c until the server closes it or ctx ends, and counts the rounds. It discards
// the answers.
func (k Kind) Run(ctx context.Context, c net.Conn, method string, rounds *atomic.Uint64) error {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
	defer func() { _ = c.Close(); <-read }()
	b := Hello()
	for id := uint32(1); id < 1<<31-2*batch; {
		b, id = k.Rounds(b, id, method, batch)
		if _, err := c.Write(b); err != nil {
			return fmt.Errorf("flood of %s: %w", k.Name, err)
		}
		rounds.Add(batch)
		b = b[:0]
	}
	return nil
}
