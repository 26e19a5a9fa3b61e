package connlimit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// While a client's frames are shorter than denseFrame on average, Read returns at
	// most denseRead bytes. It yields the processor after each read that has filled its
	// buffer. Otherwise gRPC's reader, which finds more to read each time, runs until the
	// scheduler preempts it, and 20 such readers delay the raft loop by seconds.
	denseFrame = 512
	denseRead  = 4 << 10
	// maxBacklog is how many requests of a connection may wait for their answers to be written. Above it the client
	// is not read. gRPC keeps an answer until it is written, even if the client has reset the request meanwhile. A
	// write of fewer than writeBuffer bytes, gRPC's default buffer size, shows that gRPC has flushed its whole queue.
	// Then it keeps no answer to a request that was reset before.
	maxBacklog  = 500
	writeBuffer = 32 << 10
	// The backlog also counts requests without an answer in gRPC's queue: those that take long, and those that were
	// reset, for which gRPC may write nothing. So it is set to 0 after the writer was idle for idleTime.
	idleTime = 200 * time.Millisecond
	// While a client sends short frames and has more than maxBusy Short requests in progress, it is read only once in
	// maxWait. With more requests, goroutines, the raft loop among them, wait for a processor.
	maxBusy = 500
	maxWait = 100 * time.Millisecond
	// maxFragments is how many DATA frames with less than shortData bytes a client may
	// send on streams that the server has not answered since. gRPC keeps some 100 bytes
	// for each of them until the message is complete.
	maxFragments = 100_000
	shortData    = 64
)

// ErrFragments is the error of Read if a client sends more than maxFragments.
var ErrFragments = fmt.Errorf("kvnode: the client has sent more than %d frames with less than %d bytes of a message on streams without an answer; "+
	"send larger frames", maxFragments, shortData)

// H2 limits what the connections of one gRPC server hold. Its methods are safe for
// concurrent use.
type H2 struct {
	max     int64        // immutable
	log     *slog.Logger // immutable
	warn    rate.Sometimes
	open    atomic.Int64
	refused atomic.Uint64
}

// NewH2 returns the limits of a server on which at most maxStreams streams may be
// open on all connections together.
func NewH2(maxStreams int, log *slog.Logger) *H2 {
	return &H2{max: int64(maxStreams), log: log, warn: rate.Sometimes{First: 3, Interval: 10 * time.Second}}
}

// Conn returns c with these limits. c speaks HTTP/2 as the server and has not read
// the client's preface. One goroutine may read while another one writes.
func (h *H2) Conn(c net.Conn) *H2Conn {
	l := &H2Conn{Conn: c, h2: h, dense: true, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	l.addr = &Addr{c.RemoteAddr(), l}
	l.in.skip = prefaceLen
	l.mu.open = make(map[uint32]int)
	return l
}

// H2Conn is a connection of a gRPC server.
type H2Conn struct {
	net.Conn // immutable, as this block
	h2       *H2
	addr     *Addr
	wake     chan struct{} // wakes Read after the backlog has shrunk
	closed   chan struct{}
	closing  sync.Once

	// in and dense belong to the reading goroutine, out to the writing one.
	in    scanner
	dense bool // the client's frames are short
	out   scanner

	mu struct {
		sync.Mutex
		// open has the streams that were neither reset nor answered to the end, with the number of fragments since
		// the last part of an answer. It is nil after Close. H2.open counts the streams of all connections.
		open      map[uint32]int
		fragments int       // of all streams in open
		busy      int64     // Short requests that are being served
		backlog   int       // requests with an answer that may be in gRPC's queue: see maxBacklog
		settled   int       // requests in backlog that leave it when gRPC has flushed its queue
		writing   bool      // a write is in progress
		wrote     time.Time // when the last write ended
	}
}

// Addr is the address of a client, with methods for its connection: gRPC's handlers get the address, but not the
// connection.
type Addr struct {
	net.Addr // immutable

	conn *H2Conn
}

// End closes the connection.
func (a *Addr) End() { _ = a.conn.Close() } // an error means that it is closed

// Ended reports whether the connection is closed.
func (a *Addr) Ended() bool {
	select {
	case <-a.conn.closed:
		return true
	default:
		return false
	}
}

// RemoteAddr implements net.Conn. It returns the same *Addr each time.
func (c *H2Conn) RemoteAddr() net.Addr { return c.addr }

// Close implements net.Conn.
func (c *H2Conn) Close() error {
	c.closing.Do(func() {
		close(c.closed)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.h2.open.Add(-int64(len(c.mu.open)))
		c.mu.open, c.mu.fragments = nil, 0
	})
	return c.Conn.Close()
}

// Read implements net.Conn. It waits while the backlog is too large, and for a while if too many requests are in
// progress (mayRead), so that TCP slows the client down.
func (c *H2Conn) Read(p []byte) (int, error) {
	for began := time.Now(); !c.mayRead(began, time.Now()); {
		select {
		case <-c.wake:
		case <-time.After(maxWait / 10):
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	if c.dense {
		p = p[:min(len(p), denseRead)]
	}
	n, err := c.Conn.Read(p)
	if n == len(p) {
		runtime.Gosched() // the client has sent more
	}
	if !c.received(p[:n]) {
		c.h2.warn.Do(func() {
			c.h2.log.Warn("connection closed", "remote", c.addr.String(), "error", ErrFragments)
		})
		return 0, errors.Join(ErrFragments, c.Close())
	}
	return n, err
}

// mayRead reports whether the client may be read. Read has waited for that since began.
func (c *H2Conn) mayRead(began, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.writing && now.Sub(c.mu.wrote) >= idleTime {
		c.mu.backlog, c.mu.settled = 0, 0
	}
	if c.dense && c.mu.busy > maxBusy && now.Sub(began) < maxWait {
		return false
	}
	return c.mu.backlog <= maxBacklog
}

// received counts the frames that begin in p. It returns false if the client has sent
// too many fragments.
func (c *H2Conn) received(p []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	frames := 0
	for f, rest, ok := c.in.next(p); ok; f, rest, ok = c.in.next(rest) {
		frames++
		switch f.kind {
		case frameHeaders:
			c.mu.backlog++
			c.beginLocked(f.stream)
		case frameReset:
			if c.endLocked(f.stream) {
				c.mu.settled++
			}
		case frameData:
			c.fragmentLocked(&f)
		}
	}
	if frames > 0 || len(p) >= denseFrame { // a short read within one frame says nothing about its length
		c.dense = frames*denseFrame > len(p)
	}
	return c.mu.fragments <= maxFragments
}

// fragmentLocked counts short DATA frames, except the last one of a stream, which completes its message. A padded
// frame counts as short, because it may consist of padding, which client libraries do not use.
func (c *H2Conn) fragmentLocked(f *frame) {
	n, ok := c.mu.open[f.stream]
	if ok && f.flags&flagEndStream == 0 && (f.length < shortData || f.flags&flagPadded != 0) {
		c.mu.open[f.stream] = n + 1
		c.mu.fragments++
	}
}

// Write implements net.Conn.
func (c *H2Conn) Write(p []byte) (int, error) {
	c.sending(len(p))
	n, err := c.Conn.Write(p)
	c.sent(p[:n])
	return n, err
}

// sending notes that a write of n bytes begins.
func (c *H2Conn) sending(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.writing = true
	if n < writeBuffer {
		c.mu.backlog = max(0, c.mu.backlog-c.mu.settled)
		c.mu.settled = 0
		c.wakeReader()
	}
}

// sent counts the frames that begin in p, which was written.
func (c *H2Conn) sent(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.writing, c.mu.wrote = false, time.Now()
	for f, rest, ok := c.out.next(p); ok; f, rest, ok = c.out.next(rest) {
		switch {
		case f.kind == frameHeaders && f.flags&flagEndStream != 0:
			c.mu.backlog = max(0, c.mu.backlog-1)
			c.endLocked(f.stream)
		case f.kind == frameReset:
			c.endLocked(f.stream)
		case f.kind == frameHeaders, f.kind == frameData:
			c.answeredLocked(f.stream)
		}
	}
	if c.mu.backlog <= maxBacklog {
		c.wakeReader()
	}
}

func (c *H2Conn) wakeReader() {
	select {
	case c.wake <- struct{}{}:
	default: // Read has a wakeup already
	}
}

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

// next returns the next frame of p and the bytes after its header. ok is false if p
// ends before or within the header.
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
