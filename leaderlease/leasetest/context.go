package leasetest

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/leaderlease/go/leaderlease"
)

// askedContext is a context that the test ends, in one goroutine. It reports a call of its
// methods while the Lease is locked, because an embedder's context may call the Lease.
type askedContext struct {
	context.Context
	lease *leaderlease.Lease
	done  chan struct{}
	err   error
	// early ends the context as soon as a function is registered with AfterFunc.
	early bool
	hooks []func()
	wrong func(what string)
}

func (s *script) newContext(l *leaderlease.Lease, early bool) *askedContext {
	return &askedContext{Context: context.Background(), lease: l, done: make(chan struct{}), early: early, wrong: s.wrong}
}

// Err implements context.Context.
func (c *askedContext) Err() error {
	c.see()
	return c.err
}

// Done implements context.Context.
func (c *askedContext) Done() <-chan struct{} {
	c.see()
	return c.done
}

// Value implements context.Context.
func (c *askedContext) Value(any) any {
	c.see()
	return nil
}

// AfterFunc implements the optional interface of context.AfterFunc. If the context ends
// early, f still waits for end, as if for the goroutine that would call it.
func (c *askedContext) AfterFunc(f func()) (stop func() bool) {
	c.see()
	id := len(c.hooks)
	c.hooks = append(c.hooks, f)
	if c.early {
		c.over()
	}
	return func() bool {
		c.see()
		waits := c.hooks[id] != nil
		c.hooks[id] = nil
		return waits
	}
}

func (c *askedContext) over() {
	if c.err == nil {
		c.err = context.Canceled
		close(c.done)
	}
}

// end ends the context, and returns when all registered functions have returned. Package
// context runs them in goroutines, which the synctest bubble waits for.
func (c *askedContext) end(t *testing.T) {
	t.Helper()
	c.over()
	for id, f := range c.hooks {
		if f != nil {
			c.hooks[id] = nil
			synctest.Test(t, func(*testing.T) { f() })
		}
	}
}

func (c *askedContext) see() {
	if locked(c.lease) {
		c.wrong("a context is asked with the lease locked")
	}
}

// locked reports whether the lock of l is held, by its one bit. Only one goroutine runs at a
// time, so a held lock is held by the caller of the context.
func locked(l *leaderlease.Lease) bool {
	mu := reflect.ValueOf(l).Elem().FieldByName("mu").FieldByName("Mutex").FieldByName("mu")
	return mu.FieldByName("state").Int()&1 != 0
}
