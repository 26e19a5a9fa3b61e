package memlink

import (
	"net"
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

// Close implements net.Conn. What was written still arrives.
func (c *conn) Close() error {
	if !c.in.closeReader() {
		return c.wrap("close", net.ErrClosed)
	}
	c.out.closeWriter()
	return nil
}

// CloseWrite ends what this end writes, and only that.
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

// wrap leaves io.EOF and nil alone, as package net does.
func (c *conn) wrap(op string, err error) error {
	if err == nil || isEOF(err) {
		return err
	}
	return &net.OpError{Op: op, Net: network, Source: c.local, Addr: c.remote, Err: err}
}
