package inproc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/bench/internal/load"
)

// delays delivers the data of all its connections later, and in order. One goroutine
// is enough, since the delay is the same for all.
type delays struct {
	oneWay  atomic.Int64
	sleeper *load.Sleeper
	stop    chan struct{}
	done    chan struct{}
	wake    chan struct{}

	mu struct {
		sync.Mutex
		queue []parcel
		// carrying: the first parcel has left the queue and not arrived.
		carrying bool
	}
}

// parcel is the data of one Write.
type parcel struct {
	to   net.Conn
	data []byte
	due  time.Time
}

func newDelays() (*delays, error) {
	s, err := load.NewSleeper()
	if err != nil {
		return nil, err
	}
	d := &delays{sleeper: s, stop: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go d.carry()
	return d, nil
}

func (d *delays) close() error {
	close(d.stop)
	err := d.sleeper.Close()
	<-d.done
	return err
}

// send copies data and reports whether it will deliver it. Without a delay and with an
// empty queue it does not.
func (d *delays) send(to net.Conn, data []byte) bool {
	wait := time.Duration(d.oneWay.Load())
	d.mu.Lock()
	idle := len(d.mu.queue) == 0 && !d.mu.carrying
	if wait == 0 && idle {
		d.mu.Unlock()
		return false
	}
	d.mu.queue = append(d.mu.queue, parcel{to, append([]byte(nil), data...), time.Now().Add(wait)})
	d.mu.Unlock()
	if idle {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return true
}

func (d *delays) carry() {
	defer close(d.done)
	for {
		p, ok := d.next()
		if !ok {
			select {
			case <-d.wake:
				continue
			case <-d.stop:
				return
			}
		}
		d.sleeper.Sleep(time.Until(p.due))
		select {
		case <-d.stop:
			return
		default:
		}
		_, _ = p.to.Write(p.data) // a closed connection: its owner knows
	}
}

func (d *delays) next() (p parcel, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.carrying = len(d.mu.queue) > 0
	if !d.mu.carrying {
		return parcel{}, false
	}
	p = d.mu.queue[0]
	d.mu.queue[0] = parcel{}
	d.mu.queue = d.mu.queue[1:]
	return p, true
}

// conn delays writes.
type conn struct {
	net.Conn
	by *delays
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if c.by.send(c.Conn, b) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// listener delays the writes of the connections that it accepts.
type listener struct {
	net.Listener
	by *delays
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{c, l.by}, nil
}

// dialer delays the writes of the connections that it makes.
func (d *delays) dialer(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &conn{c, d}, nil
	}
}
