package leasetest

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/leaderlease/go/leaderlease"
)

// askedContext is an embedder's context that ends when the test says so, in one
// goroutine. It says so if it is asked with the Lease locked: an embedder's context may
// itself ask the Lease.
type askedContext struct {
	context.Context
	lease *leaderlease.Lease
	done  chan struct{}
	err   error
	// early ends it as soon as something is to be called at its end.
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

// AfterFunc is what context.AfterFunc asks of contexts that are none of its own. What
// an early one has to call waits for end, as for the goroutine that would call it.
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

// end ends it, and returns when everything has been called that is called then: package
// context does so in a goroutine, which a bubble waits for.
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

// locked looks at the one bit of the lock of l that says so. Everything here runs in
// one goroutine at a time, so whoever holds it is calling.
func locked(l *leaderlease.Lease) bool {
	mu := reflect.ValueOf(l).Elem().FieldByName("mu").FieldByName("Mutex").FieldByName("mu")
	return mu.FieldByName("state").Int()&1 != 0
}
