package leaderlease

import (
	"context"
	"errors"
	"testing"
)

// hookContext counts what is to be called at its end.
type hookContext struct {
	context.Context
	done  chan struct{}
	hooks int
}

func (c *hookContext) Done() <-chan struct{} { return c.done }

// AfterFunc is what context.AfterFunc asks of contexts that are none of its own.
func (c *hookContext) AfterFunc(func()) (stop func() bool) {
	c.hooks++
	return func() bool { c.hooks--; return true }
}

// A read that is over leaves nothing in its context, which may live for as long as the
// process, also where it is answered or refused while it starts.
func TestAReadThatIsOverLeavesNothingInItsContext(t *testing.T) {
	ctx := &hookContext{Context: t.Context(), done: make(chan struct{})}
	refused, got := errors.New("not called"), error(nil)
	newPuppet(t).StartRead(ctx, func(_ ReadResult, err error) { refused = err })
	if !errors.Is(refused, ErrNoLease) || ctx.hooks != 0 {
		t.Errorf("StartRead() without a leader = %v, and leaves %d hooks, want %v and none", refused, ctx.hooks, ErrNoLease)
	}
	p := leading(t)
	p.StartReadIndex(ctx, func(_ ReadResult, err error) { got = err })
	if ctx.hooks != 1 {
		t.Errorf("StartReadIndex() that waits leaves %d hooks, want one, or this proves little", ctx.hooks)
	}
	if p.follow(3, 2); got == nil || ctx.hooks != 0 {
		t.Errorf("StartReadIndex() = %v at the end of the reign, and leaves %d hooks, want an error and none", got, ctx.hooks)
	}
}

// Reads that are over are not kept by the list that they waited in.
func TestReadsThatAreOverAreNotKept(t *testing.T) {
	var q waitlist
	for i := range uint64(4) {
		q.push(&waiter{read: ReadResult{Index: i}})
	}
	q.take(func(w *waiter) bool { return w.read.Index%2 == 0 })
	for i, w := range q.all[:4] {
		if over := i >= q.len(); over != (w == nil) {
			t.Errorf("place %d of 4 is taken: %v, of a list of %d", i, w != nil, q.len())
		}
	}
}
