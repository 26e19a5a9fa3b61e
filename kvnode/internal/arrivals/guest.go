package arrivals

import (
	"context"
	"errors"
	"net"
	"time"
)

// Guest is a connection that a hall knows of. Its methods may be called in any
// order, also on nil, which is the guest of no hall.
type Guest struct {
	hall  *Hall // immutable, as all of this block
	pool  *pool
	conn  net.Conn // what is closed to cut it
	owner string

	// The hall's lock guards what follows.

	// alive is when it last showed a sign of life, since the hall was opened.
	alive time.Duration
	place int  // in pool.waiting
	paid  bool // a token was taken, and not given back
	state state
}

type state int

const (
	waits state = iota
	introduced
	gone
)

// patience is for how much longer a guest is waited for that has said something
// than for one that has not. Longer: whoever stops half way holds its place for as
// long as places are short. Shorter: slow but honest handshakes are cut for
// newcomers that may never say a word.
const patience = time.Second

// ErrThrottled says that handshakes with a host have led nowhere too often.
var ErrThrottled = errors.New("handshakes with this address have failed too often; it may try again soon")

// Work is asked before anything is computed for the guest. Its error ends the
// connection.
func (g *Guest) Work() error {
	if g == nil {
		return nil
	}
	h := g.hall
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case g.state == gone:
		return net.ErrClosed
	case g.paid || g.state == introduced:
		return nil
	case g.pool.dry(now, g.owner):
		h.mu.throttled++
		return ErrThrottled
	}
	g.pool.pay(now, g.owner)
	g.paid, g.alive = true, now+patience
	return nil
}

// Alive notes that the guest has come further.
func (g *Guest) Alive() {
	if g == nil {
		return
	}
	now := g.hall.now()
	g.hall.mu.Lock()
	defer g.hall.mu.Unlock()
	g.alive = now + patience
}

// Introduce ends the guest's wait: it has said who it is. It reports false if the
// guest was cut before.
func (g *Guest) Introduce() bool {
	if g == nil {
		return true
	}
	g.hall.mu.Lock()
	defer g.hall.mu.Unlock()
	if g.state != waits {
		return g.state == introduced
	}
	g.pool.remove(g)
	g.state = introduced
	if g.paid {
		g.paid = false
		g.pool.refund(g.owner)
	}
	return true
}

// Leave ends the stay of a guest whose connection is closed.
func (g *Guest) Leave() {
	if g == nil {
		return
	}
	g.hall.mu.Lock()
	defer g.hall.mu.Unlock()
	g.leaveLocked()
}

func (g *Guest) leaveLocked() {
	switch g.state {
	case gone:
		return
	case waits:
		g.pool.remove(g)
	case introduced:
	}
	g.state = gone
	g.hall.mu.open--
}

// Cut reports whether the guest had to make room. What went wrong with its
// connection then needs no words.
func (g *Guest) Cut() bool {
	if g == nil {
		return false
	}
	g.hall.mu.Lock()
	defer g.hall.mu.Unlock()
	return g.state == gone
}

type contextKey struct{}

// Context returns ctx with the guest in it, for a handshake.
func (g *Guest) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, g)
}

// Work is Guest.Work of the guest in a handshake's context, if there is one.
func Work(ctx context.Context) error {
	g, _ := ctx.Value(contextKey{}).(*Guest)
	return g.Work()
}
