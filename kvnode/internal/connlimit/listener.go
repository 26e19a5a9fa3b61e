package connlimit

import "net"

// Listener returns l with its connections counted as pending. PendingOf returns what
// counts a connection.
func (p *Port) Listener(l net.Listener) net.Listener { return &listener{l, p} }

type listener struct {
	net.Listener
	port *Port
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if n, ok := l.port.Admit(c); ok {
			return &conn{c, n}, nil
		}
	}
}

// conn is a connection of a listener.
type conn struct {
	net.Conn
	pending *Pending
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.pending.Release()
	return c.Conn.Close()
}

// CloseWrite closes the direction to the client, if the connection can do that.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// layer is a connection on top of another one, such as a tls.Conn.
type layer interface{ NetConn() net.Conn }

// PendingOf returns the Pending of a connection that a Port's listener has accepted,
// below any layers. It returns nil for other connections.
func PendingOf(c net.Conn) *Pending {
	for {
		switch at := c.(type) {
		case *conn:
			return at.pending
		case layer:
			c = at.NetConn()
		default:
			return nil
		}
	}
}

// rawConn returns the connection below all layers. TLS would wait to say goodbye.
func rawConn(c net.Conn) net.Conn {
	for {
		above, ok := c.(layer)
		if !ok {
			return c
		}
		c = above.NetConn()
	}
}
