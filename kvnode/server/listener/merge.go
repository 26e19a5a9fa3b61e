package listener

import (
	"net"
	"sync"
)

// merged is the listener that Merge returns.
type merged struct {
	all      []net.Listener // immutable
	accepted chan accepted
	closed   chan struct{}
	closing  sync.Once
	wg       sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// Merge returns one listener that accepts the connections of all.
func Merge(all []net.Listener) net.Listener {
	if len(all) == 1 {
		return all[0]
	}
	m := &merged{all: all, accepted: make(chan accepted), closed: make(chan struct{})}
	for _, l := range all {
		m.wg.Go(func() { m.serve(l) })
	}
	return m
}

func (m *merged) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		select {
		case m.accepted <- accepted{conn, err}:
		case <-m.closed:
			if conn != nil {
				_ = conn.Close() // an error means that it is closed
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (m *merged) Accept() (net.Conn, error) {
	select {
	case a := <-m.accepted:
		return a.conn, a.err
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It waits for the goroutines of all listeners.
func (m *merged) Close() error {
	m.closing.Do(func() {
		close(m.closed)
		CloseAll(m.all)
		m.wg.Wait()
	})
	return nil
}

// Addr implements net.Listener. It returns the address of the first listener.
func (m *merged) Addr() net.Addr { return m.all[0].Addr() }
