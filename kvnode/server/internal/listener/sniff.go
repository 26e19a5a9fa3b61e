package listener

import (
	"net"
	"sync"
)

// preface is what HTTP/2 begins with (RFC 9113, section 3.4), and no HTTP/1 request.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// sniff reads until it knows whether the client speaks HTTP/2. The connection that it
// returns reads the same bytes again.
func sniff(c net.Conn) (again net.Conn, isHTTP2 bool, err error) {
	head := make([]byte, len(preface))
	for n := 0; n < len(head); {
		m, err := c.Read(head[n:])
		n += m
		if string(head[:n]) != preface[:n] {
			return &sniffedConn{c, head[:n]}, false, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	return &sniffedConn{c, head}, true, nil
}

// sniffedConn is a connection with bytes that were read before.
type sniffedConn struct {
	net.Conn

	head []byte // what is still to be read again
}

// NetConn returns the connection below, as that of tls.Conn does.
func (s *sniffedConn) NetConn() net.Conn { return s.Conn }

// Read implements net.Conn.
func (s *sniffedConn) Read(p []byte) (int, error) {
	if len(s.head) == 0 {
		return s.Conn.Read(p)
	}
	n := copy(p, s.head)
	s.head = s.head[n:]
	return n, nil
}

// PushListener is a listener that accepts the connections that Push passes to it.
type PushListener struct {
	conns   chan net.Conn
	closed  chan struct{}
	closing sync.Once
}

// NewPushListener returns a listener without connections.
func NewPushListener() *PushListener {
	return &PushListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Push waits until Accept has taken c. If Push fails, the caller still owns c.
func (l *PushListener) Push(c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.closed:
		return net.ErrClosed
	}
}

// Accept implements net.Listener.
func (l *PushListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *PushListener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *PushListener) Addr() net.Addr { return pagesAddr{} }

type pagesAddr struct{}

// Network implements net.Addr.
func (pagesAddr) Network() string { return "tcp" }

// String implements net.Addr.
func (pagesAddr) String() string { return "HTTP or a gateway" }
