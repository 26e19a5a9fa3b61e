package memlink

import (
	"errors"
	"net"
	"sync"
)

const (
	network = "mem"
	// backlog is how many connections wait for Accept; more are refused.
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
