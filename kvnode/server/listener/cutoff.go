package listener

import (
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// endable makes connections of gRPC ones that the API can end: who does not take
// what was encoded for it would hold the memory of others.
type endable struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (e endable) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := e.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return &endableConn{Conn: conn}, info, nil
}

// endableConn is a connection whose address can end it: an address is all that gRPC
// tells of a connection.
type endableConn struct {
	net.Conn

	ended atomic.Bool
}

// RemoteAddr implements net.Conn.
func (c *endableConn) RemoteAddr() net.Addr { return &endableAddr{c.Conn.RemoteAddr(), c} }

// Close implements net.Conn.
func (c *endableConn) Close() error {
	c.ended.Store(true)
	return c.Conn.Close()
}

// endableAddr is what the API knows as the other end.
type endableAddr struct {
	net.Addr

	conn *endableConn
}

// End ends the connection. That it had ended already is no error.
func (a *endableAddr) End() { _ = a.conn.Close() }

// Ended reports whether the connection has ended.
func (a *endableAddr) Ended() bool { return a.conn.ended.Load() }
