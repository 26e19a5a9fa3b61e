package etcdapi

import (
	"context"
	"sync"
	"time"

	"github.com/leaderlease/go/kvnode"
)

// lateContext is context.WithDeadlineCause for requests that will hardly ever
// wait: there is no timer, and no second allocation, until somebody asks for
// Done. Its cause is kvnode.ErrTimeout, as that of the node's own deadline.
type lateContext struct {
	context.Context // the request's
	deadline        time.Time
	undecided       bool // the client has not said for how long it waits

	mu struct {
		sync.Mutex
		inner  context.Context // nil until Done was asked for
		cancel context.CancelFunc
	}
}

func newLateContext(parent context.Context, deadline time.Time) *lateContext {
	return &lateContext{Context: parent, deadline: deadline}
}

// Deadline implements context.Context.
func (c *lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *lateContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.inner == nil {
		c.mu.inner, c.mu.cancel = context.WithDeadlineCause(c.Context, c.deadline, kvnode.ErrTimeout)
	}
	return c.mu.inner.Done()
}

// Err implements context.Context.
func (c *lateContext) Err() error {
	if inner := c.started(); inner != nil {
		return inner.Err()
	}
	if err := c.Context.Err(); err != nil {
		return err
	}
	if time.Now().Before(c.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}

// Value implements context.Context. Package context finds by it the context
// whose Done this is, and needs no goroutine for contexts derived from it.
func (c *lateContext) Value(key any) any {
	if _, ok := key.(kvnode.FailWithoutLeader); ok {
		if c.undecided {
			return true
		}
		return nil
	}
	if inner := c.started(); inner != nil {
		return inner.Value(key)
	}
	return c.Context.Value(key)
}

// ownContext returns the client's context if ctx is a lateContext of it. It is
// for what a member does by itself once it has been permitted: that takes as long
// as it takes, or as the client waits, and no other member would be faster.
func ownContext(ctx context.Context) context.Context {
	if late, ok := ctx.(*lateContext); ok {
		return late.Context
	}
	return ctx
}

func (c *lateContext) started() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.inner
}

// release stops the timer if there is one. A Done asked for afterwards ends
// with the request.
func (c *lateContext) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.cancel != nil {
		c.mu.cancel()
	}
}
