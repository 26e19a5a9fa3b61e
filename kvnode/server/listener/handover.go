package listener

import (
	"net"
	"sync"
)

// preface is what HTTP/2 begins with (RFC 9113, section 3.4). No request of HTTP/1
// does.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// listenFirst reads until it is certain whether the other end speaks HTTP/2. The
// connection it returns has what was read still to be read.
func listenFirst(c net.Conn) (first net.Conn, isHTTP2 bool, err error) {
	said := make([]byte, len(preface))
	for n := 0; n < len(said); {
		m, err := c.Read(said[n:])
		n += m
		if string(said[:n]) != preface[:n] {
			return &overheard{c, said[:n]}, false, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	return &overheard{c, said}, true, nil
}

// overheard is a connection that something was read from already.
type overheard struct {
	net.Conn

	said []byte // what was, as long as nobody has read it again
}

// NetConn returns what is below, as tls.Conn's does.
func (o *overheard) NetConn() net.Conn { return o.Conn }

// Read implements net.Conn.
func (o *overheard) Read(p []byte) (int, error) {
	if len(o.said) == 0 {
		return o.Conn.Read(p)
	}
	n := copy(p, o.said)
	o.said = o.said[n:]
	return n, nil
}

// Handover is a listener for connections that others have accepted.
type Handover struct {
	conns   chan net.Conn
	closed  chan struct{}
	closing sync.Once
}

// NewHandover returns one that nobody has handed anything to.
func NewHandover() *Handover {
	return &Handover{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Give hands c over to whoever accepts. If it fails c is still the caller's.
func (h *Handover) Give(c net.Conn) error {
	select {
	case h.conns <- c:
		return nil
	case <-h.closed:
		return net.ErrClosed
	}
}

// Accept implements net.Listener.
func (h *Handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *Handover) Close() error {
	h.closing.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener.
func (h *Handover) Addr() net.Addr { return handoverAddr{} }

type handoverAddr struct{}

// Network implements net.Addr.
func (handoverAddr) Network() string { return "tcp" }

// String implements net.Addr.
func (handoverAddr) String() string { return "HTTP on the client URLs" }
