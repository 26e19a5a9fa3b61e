package memlink

import (
	"errors"
	"net"
	"sync"
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

// Close implements net.Conn. Written bytes still arrive.
func (c *conn) Close() error {
	if !c.in.closeReader() {
		return c.wrap("close", net.ErrClosed)
	}
	c.out.closeWriter()
	return nil
}

// CloseWrite closes only this end's direction.
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

// wrap returns io.EOF and nil unchanged, as package net does.
func (c *conn) wrap(op string, err error) error {
	if err == nil || isEOF(err) {
		return err
	}
	return &net.OpError{Op: op, Net: network, Source: c.local, Addr: c.remote, Err: err}
}

const (
	network = "mem"
	// backlog is the number of connections that may wait for Accept. Dial refuses more.
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

// offer passes a connection to Accept. It fails if the listener is closed or its backlog
// is full.
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

// Close implements net.Listener. Connections that wait are reset.
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
