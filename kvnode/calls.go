package kvnode

import (
	"context"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
)

// calls is the way into the loop for whoever wants something of raft: nobody else touches
// what is the loop's, and so it is handed to them there.
type calls struct {
	lifecycle.Mailbox[func(*raftLoop)]
	stopping <-chan struct{} // immutable
}

// do runs f in the loop and waits for its end. It returns false if the node stops first;
// f may then run all the same, so it must not use what its caller goes on with. Never called
// by the loop itself, which would wait for itself.
func (c *calls) do(f func(*raftLoop)) bool {
	_, err := ask(context.Background(), c, func(l *raftLoop) struct{} { f(l); return struct{}{} })
	return err == nil
}

// ask returns what f does, in the loop, or why that is not waited for.
func ask[T any](ctx context.Context, c *calls, f func(*raftLoop) T) (answer T, err error) {
	answers := make(chan T, 1)
	c.Push(func(l *raftLoop) { answers <- f(l) })
	select {
	case answer = <-answers:
		return answer, nil
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	case <-c.stopping:
		return answer, ErrStopped
	}
}
