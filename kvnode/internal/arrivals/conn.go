package arrivals

import "net"

// Listener returns l with its connections as guests, until Settle is called on
// what Of finds, or the connection is closed. They shake hands if it is secure.
func (h *Hall) Listener(l net.Listener, secure bool) net.Listener { return &listener{l, h, secure} }

type listener struct {
	net.Listener
	hall   *Hall
	secure bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g, ok := l.hall.Enter(c, l.secure); ok {
			return &conn{c, g}, nil
		}
	}
}

// conn is a connection of a Listener.
type conn struct {
	net.Conn
	guest *Guest
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.guest.Leave()
	return c.Conn.Close()
}

// CloseWrite ends what this end writes, if the connection can do that.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// layer is a connection over another, as tls.Conn is.
type layer interface{ NetConn() net.Conn }

// Of returns the guest that a connection is, under whatever layers, nil if it came
// by no Listener of a hall.
func Of(c net.Conn) *Guest {
	for {
		switch at := c.(type) {
		case *conn:
			return at.guest
		case layer:
			c = at.NetConn()
		default:
			return nil
		}
	}
}

// under returns what is below all layers: to close TLS properly takes time.
func under(c net.Conn) net.Conn {
	for {
		above, ok := c.(layer)
		if !ok {
			return c
		}
		c = above.NetConn()
	}
}
