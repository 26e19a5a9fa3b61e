package leaderlease

import (
	"context"
	"testing"
)

// lockContext sees whether it is asked with the lease locked.
type lockContext struct {
	context.Context
	lease  *Lease
	locked bool
}

func (c *lockContext) see() {
	if c.lease.mu.TryLock() {
		c.lease.mu.Unlock()
		return
	}
	c.locked = true
}

func (c *lockContext) Err() error            { c.see(); return c.Context.Err() }
func (c *lockContext) Done() <-chan struct{} { c.see(); return c.Context.Done() }
func (c *lockContext) Value(key any) any     { c.see(); return c.Context.Value(key) }

// A context is the embedder's code: it may ask the Lease whether it has ended.
func TestAContextIsNotAskedUnderTheLock(t *testing.T) {
	for name, use := range map[string]func(p *puppet, ctx context.Context){
		"StartReadIndex": func(p *puppet, ctx context.Context) { p.StartReadIndex(ctx, func(ReadResult, error) {}) },
		"Context":        func(p *puppet, ctx context.Context) { _, stop, _ := p.Context(ctx); stop() },
		"a lost lease":   func(p *puppet, ctx context.Context) { _, _, _ = p.Context(ctx); p.invalidate() },
	} {
		p := leading(t)
		inner, cancel := context.WithCancel(t.Context())
		ctx := &lockContext{Context: inner, lease: p.Lease}
		if use(p, ctx); ctx.locked {
			t.Errorf("%s: a method of the context was called with the lease locked", name)
		}
		cancel()
	}
}
