package floodgate

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// From whom sends frames shorter than denseFrame denseRead bytes are taken at a
	// time. More: gRPC's reader, which never waits if there is always more, keeps a
	// processor for milliseconds, and twenty of them all others, the raft loop too,
	// for hundreds. Less: more system calls.
	denseFrame = 512
	denseRead  = 4 << 10
)

// conn is a connection whose frames are counted.
type conn struct {
	net.Conn // immutable, as all of this block
	meter    *Meter
	member   func() bool
	closing  sync.Once
	closed   chan struct{}

	streams streams
	// earned are the answers that were sent. The writer adds, the reader takes.
	earned atomic.Int64
	// pen is full while something is written, and since says when that began, after
	// the meter was made; if nothing is it is when the last ended, negative.
	pen   chan struct{}
	since atomic.Int64
	wrote atomic.Int64 // bytes
	slow  atomic.Bool  // a write took long since the last pause

	// The reader's own.
	in       scanner
	ages     ages
	balance  int64 // what may be sent, or is owed if it is negative
	reckoned time.Time
	extra    int64  // what streams have for nothing
	begun    int64  // streams that may still be reset once they are old
	left     int    // streams that were reset while they were open, since that was looked at
	due      int64  // what is to be written before more is asked
	crumbs   uint64 // short DATA
	dense    bool   // frames were short lately
	heads    bool   // the newest frame is of those that begin a stream
	headed   bool   // and was their last
	refused  int64  // streams, lately
	later    []byte // what was read beyond one stream, in buffer
	buffer   *[]byte

	// The writer's own.
	out scanner
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closing.Do(func() {
		close(c.closed)
		c.streams.leave()
	})
	return c.Conn.Close()
}

// Read implements net.Conn. What floods is not returned before its turn, so that
// whoever sends it is slowed down by TCP, and nothing is kept for it; nor is
// anything while answers are not taken. At most one stream begins in what is
// returned, so that Permit can tell which is meant.
func (c *conn) Read(p []byte) (int, error) {
	data, err := c.take(p)
	if len(data) == 0 {
		return 0, err
	}
	now := time.Now()
	c.ages.pass(now)
	t := toll{old: c.refused, last: frameHeaders}
	c.refused = 0
	n := c.scan(&t, data)
	c.keep(p, data, n)
	if owed := c.earned.Load(); owed < 0 {
		c.earned.Add(-owed)
		t.owed, t.last = t.owed-owed, frameHeaders
	}
	if n < len(data) {
		err = nil // it comes again
	}
	if stuck := c.unstick(now); stuck != nil {
		return 0, stuck
	}
	if t.owed+t.old == 0 {
		return n, err
	}
	if refused := c.pay(now, t); refused != nil {
		_ = c.Close() // it is told nothing, for it need not read
		return 0, refused
	}
	return n, err
}

// take returns what is to be looked at next: what is left, or what is read into p.
func (c *conn) take(p []byte) ([]byte, error) {
	if c.later != nil {
		return c.later[:min(len(c.later), len(p))], nil
	}
	if c.dense {
		p = p[:min(len(p), denseRead)]
	}
	n, err := c.Conn.Read(p)
	if c.dense && n == len(p) {
		runtime.Gosched() // there is more: others have their turn first
	}
	return p[:n], err
}

// scan charges for what is in p, and returns how much of it comes before a second
// stream begins.
func (c *conn) scan(t *toll, p []byte) int {
	frames, n := 0, len(p)
	begun := c.heads && (c.in.skip > 0 || !c.headed)
	for f, rest, ok := c.in.next(p); ok; f, rest, ok = c.in.next(rest) {
		at := len(p) - len(rest) - headerLen
		if f.kind == frameHeaders && begun && at > 0 {
			c.in, n = scanner{}, at // its header is read again
			break
		}
		begun = begun || f.kind == frameHeaders
		c.heads = f.kind == frameHeaders || f.kind == frameContinuation
		c.headed = f.flags&flagEndHeaders != 0
		c.charge(t, &f)
		frames++
	}
	c.dense = frames*denseFrame > n
	return n
}

// spare are buffers for what is left of a read.
var spare = sync.Pool{New: func() any { return new(make([]byte, 0, 32<<10)) }}

// keep has the first n bytes of data in p, and the others returned later.
func (c *conn) keep(p, data []byte, n int) {
	switch {
	case c.later != nil:
		copy(p, data[:n])
		if c.later = c.later[n:]; len(c.later) == 0 {
			c.later = nil
			spare.Put(c.buffer)
			c.buffer = nil
		}
	case n < len(data):
		c.buffer, _ = spare.Get().(*[]byte)
		*c.buffer = append((*c.buffer)[:0], data[n:]...)
		c.later = *c.buffer
	}
}

// sleep waits, or until the connection is closed.
func (c *conn) sleep(wait time.Duration) error {
	if wait == 0 {
		return nil
	}
	turn := time.NewTimer(wait)
	defer turn.Stop()
	select {
	case <-turn.C:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}
