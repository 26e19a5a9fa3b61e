package server

import (
	"context"
	"net"
	"time"
)

// arrivals is a listener whose connections do not hold up a stop before gRPC
// knows them: it waits for those that it shakes hands with.
type arrivals struct {
	net.Listener // immutable, as all of this

	ending context.Context
	secure bool // TLS is spoken
	shared bool // HTTP/1 is spoken besides gRPC
}

// Accept implements net.Listener.
func (l *arrivals) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	a := &arrival{Conn: c, secure: l.secure, shared: l.shared}
	a.settled = context.AfterFunc(l.ending, func() {
		_ = c.Close() // nothing was promised to it
	})
	return a, nil
}

// arrival is a connection that gRPC's server has accepted, until it knows what
// becomes of it. Only the goroutine that shakes hands calls its methods.
type arrival struct {
	net.Conn

	secure, shared bool        // immutable
	settled        func() bool // no end of the server closes it from here on
	left           bool        // it is not gRPC's any more
}

// SetDeadline implements net.Conn. gRPC's server sets a deadline before the
// handshake and takes it away when it is done, also from a connection that the
// pages have set deadlines for by then.
func (a *arrival) SetDeadline(t time.Time) error {
	if t.IsZero() {
		a.settled()
	}
	if a.left {
		return nil
	}
	return a.Conn.SetDeadline(t)
}

// leave takes the connection away from gRPC's server.
func (a *arrival) leave() {
	// An error means that it is closed, which its new owner finds out.
	_ = a.SetDeadline(time.Time{})
	a.left = true
}

// Close implements net.Conn.
func (a *arrival) Close() error {
	a.settled()
	return a.Conn.Close()
}
