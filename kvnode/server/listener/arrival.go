package listener

import (
	"context"
	"net"
	"time"

	"github.com/leaderlease/go/kvnode/internal/arrivals"
)

// clientListener is a listener whose connections do not hold up a stop before gRPC
// knows them: it waits for those that it shakes hands with.
type clientListener struct {
	net.Listener // immutable, as all of this

	ending context.Context
	secure bool // TLS is spoken
	shared bool // HTTP/1 is spoken besides gRPC
}

// Accept implements net.Listener.
func (l *clientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	a := &arrival{Conn: c, guest: arrivals.Of(c), secure: l.secure, shared: l.shared}
	a.introduced = context.AfterFunc(l.ending, func() {
		_ = c.Close() // nothing was promised to it
	})
	return a, nil
}

// arrival is a connection that gRPC's server has accepted, until it knows what
// becomes of it. Only the goroutine that shakes hands calls its methods.
type arrival struct {
	net.Conn

	guest          *arrivals.Guest // immutable, as the next line
	secure, shared bool
	introduced     func() bool // no end of the server closes it from here on
	left           bool        // it is not gRPC's any more
}

// SetDeadline implements net.Conn. gRPC's server sets a deadline before the
// handshake and takes it away when it is done: the client has begun by then. It
// does so, too, with a connection that the pages have set deadlines for.
func (a *arrival) SetDeadline(t time.Time) error {
	if a.left {
		return nil
	}
	if t.IsZero() {
		a.introduced()
		a.guest.Introduce() // if it was cut, the next read says so
	}
	return a.Conn.SetDeadline(t)
}

// leave takes the connection away from gRPC's server.
func (a *arrival) leave() {
	a.introduced()
	// An error means that it is closed, which its new owner finds out.
	_ = a.Conn.SetDeadline(time.Time{})
	a.left = true
}

// Close implements net.Conn.
func (a *arrival) Close() error {
	a.introduced()
	return a.Conn.Close()
}
