package memlink

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection.
type conn struct {
	in, out       *pipe
	local, remote address
}

// connect returns both ends of a connection.
func connect(there, back *path, from, to address) (dialler, acceptor *conn) {
	a, b := newPipe(there), newPipe(back)
	dialler = &conn{in: b, out: a, local: from, remote: to}
	acceptor = &conn{in: a, out: b, local: to, remote: from}
	return dialler, acceptor
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.wrap("read", err)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	return n, c.wrap("write", err)
}

// Close implements net.Conn. Bytes already written still arrive.
func (c *conn) Close() error {
	if !c.in.closeReader() {
		return c.wrap("close", net.ErrClosed)
	}
	c.out.closeWriter()
	return nil
}

// CloseWrite ends the direction from this end. The other direction stays open.
func (c *conn) CloseWrite() error {
	c.out.closeWriter()
	return nil
}

// abort resets the connection.
func (c *conn) abort() {
	c.in.reset()
	c.out.reset()
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.wrap("set", c.in.setDeadline(&c.in.reading, t))
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.wrap("set", c.out.setDeadline(&c.out.writing, t))
}

// wrap wraps errors like package net, which returns io.EOF unchanged.
func (c *conn) wrap(op string, err error) error {
	if err == nil || isEOF(err) {
		return err
	}
	return &net.OpError{Op: op, Net: network, Source: c.local, Addr: c.remote, Err: err}
}

const (
	network = "mem"
	// backlog is the number of connections that may wait for Accept. Further ones are refused.
	backlog = 128
)

var (
	errRefused = errors.New("connection refused")
	errInUse   = errors.New("address already in use")
)

type address string

// Network implements net.Addr.
func (address) Network() string { return network }

// String implements net.Addr.
func (a address) String() string { return string(a) }

type listener struct {
	n      *Network
	addr   address
	queue  chan *conn
	once   sync.Once
	mu     sync.Mutex // orders offer and Close
	closed chan struct{}
}

// offer hands over a connection. It reports false if the listener does not accept it.
func (l *listener) offer(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return false
	default:
	}
	select {
	case l.queue <- c:
		return true
	default:
		return false
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
	case c := <-l.queue:
		return c, nil
	}
	return nil, &net.OpError{Op: "accept", Net: network, Addr: l.addr, Err: net.ErrClosed}
}

// Close implements net.Listener. Waiting connections are reset.
func (l *listener) Close() error {
	err := error(&net.OpError{Op: "close", Net: network, Addr: l.addr, Err: net.ErrClosed})
	l.once.Do(func() {
		err = nil
		l.n.mu.Lock()
		delete(l.n.listeners, string(l.addr))
		l.n.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.queue:
				c.abort()
			default:
				return
			}
		}
	})
	return err
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

// bufferSize is the maximum number of unread bytes in one direction.
const bufferSize = 256 << 10

var (
	errReset  = error(syscall.ECONNRESET)
	errBroken = errors.New("broken pipe")
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// pipe is one direction of a connection.
type pipe struct {
	path *path

	mu sync.Mutex
	// changed is broadcast when any of the following fields changes.
	changed      *sync.Cond
	parts        []part
	size         int
	readerClosed bool
	writerClosed bool
	isReset      bool
	reading      side
	writing      side
}

// part holds the bytes of one write.
type part struct {
	data []byte
	at   time.Time // when it arrives, unless it is held
	end  bool      // nothing follows
}

// side is the deadline of one end.
type side struct {
	deadline time.Time
	timer    *time.Timer
	closed   bool
}

func newPipe(p *path) *pipe {
	q := &pipe{path: p}
	q.changed = sync.NewCond(&q.mu)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pipes[q] = struct{}{}
	return q
}

func (q *pipe) wakeUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Broadcast()
}

func (q *pipe) read(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.readerClosed:
			return 0, net.ErrClosed
		case q.isReset:
			return 0, errReset
		case q.reading.expired():
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		}
		if len(q.parts) > 0 && !q.path.held() {
			p := &q.parts[0]
			wait := time.Until(p.at)
			if wait <= 0 {
				return q.consumeLocked(b)
			}
			q.waitLocked(wait)
			continue
		}
		q.changed.Wait()
	}
}

// waitLocked waits for a change, or until d has passed.
func (q *pipe) waitLocked(d time.Duration) {
	timer := time.AfterFunc(d, q.wakeUp)
	defer timer.Stop()
	q.changed.Wait()
}

func (q *pipe) consumeLocked(b []byte) (int, error) {
	p := &q.parts[0]
	if p.end {
		return 0, io.EOF
	}
	n := copy(b, p.data)
	if p.data = p.data[n:]; len(p.data) == 0 {
		q.parts[0] = part{}
		q.parts = q.parts[1:]
	}
	q.size -= n
	q.changed.Broadcast()
	return n, nil
}

func (q *pipe) write(b []byte) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.writerClosed:
			return n, net.ErrClosed
		case q.isReset:
			return n, errReset
		case q.readerClosed && !q.path.held():
			return n, errBroken
		case q.writing.expired():
			return n, os.ErrDeadlineExceeded
		case len(b) == 0:
			return n, nil
		}
		if room := bufferSize - q.size; room > 0 {
			k := min(room, len(b))
			q.appendLocked(b[:k])
			n, b = n+k, b[k:]
			continue
		}
		q.changed.Wait()
	}
}

func (q *pipe) appendLocked(b []byte) {
	_, delay, damage, _ := q.path.state()
	data := append([]byte(nil), b...)
	if damage != nil {
		damage(data)
	}
	q.parts = append(q.parts, part{data: data, at: q.arrivalLocked(delay)})
	q.size += len(data)
	q.changed.Broadcast()
}

// arrivalLocked returns the arrival time of a write. It keeps the order when a delay shrinks.
func (q *pipe) arrivalLocked(delay time.Duration) time.Time {
	at := time.Now().Add(delay)
	if n := len(q.parts); n > 0 && q.parts[n-1].at.After(at) {
		return q.parts[n-1].at
	}
	return at
}

// closeWriter ends the stream after all written bytes.
func (q *pipe) closeWriter() {
	q.mu.Lock()
	if !q.writerClosed {
		q.writerClosed = true
		_, delay, _, _ := q.path.state()
		q.parts = append(q.parts, part{end: true, at: q.arrivalLocked(delay)})
		q.writing.stop()
		q.changed.Broadcast()
	}
	q.mu.Unlock()
	q.forget()
}

// closeReader reports whether the reader was open.
func (q *pipe) closeReader() bool {
	q.mu.Lock()
	open := !q.readerClosed
	q.readerClosed = true
	q.parts, q.size = nil, 0
	q.reading.stop()
	q.changed.Broadcast()
	q.mu.Unlock()
	q.forget()
	return open
}

func (q *pipe) reset() {
	q.mu.Lock()
	q.isReset = true // deadlines may still be set, as of a socket, and mean nothing
	q.reading.disarm()
	q.writing.disarm()
	q.changed.Broadcast()
	q.mu.Unlock()
	q.forget()
}

// forget removes the pipe from its path after a reset, or when both ends are closed.
func (q *pipe) forget() {
	q.mu.Lock()
	over := q.isReset || q.readerClosed && q.writerClosed
	q.mu.Unlock()
	if over {
		q.path.mu.Lock()
		delete(q.path.pipes, q)
		q.path.mu.Unlock()
	}
}

// setDeadline sets the deadline of one side and wakes it when it has passed.
func (q *pipe) setDeadline(s *side, t time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.disarm()
	s.deadline = t
	if d := time.Until(t); !t.IsZero() && d > 0 && !q.isReset {
		s.timer = time.AfterFunc(d, q.wakeUp)
	}
	q.changed.Broadcast()
	return nil
}

func (s *side) expired() bool { return !s.deadline.IsZero() && !time.Now().Before(s.deadline) }

func (s *side) stop() {
	s.closed = true
	s.disarm()
}

func (s *side) disarm() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}
