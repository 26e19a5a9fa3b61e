package kvnode

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// life is how long a node runs, and why it has ended. Anybody may end it; shutdown does what
// there is to do then.
type life struct {
	log      *slog.Logger  // immutable
	stopping chan struct{} // immutable: closed first
	stopped  chan struct{} // immutable: closed last
	workers  sync.WaitGroup
	once     sync.Once // closes stopping
	failure  atomic.Pointer[error]
}

// Done is closed when the node has stopped, by Stop or because it failed.
func (l *life) Done() <-chan struct{} { return l.stopped }

// Err returns why the node failed, nil if it did not.
func (l *life) Err() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Alive returns why the node has ended, or is about to, and nil while it runs: Err, or
// ErrStopped. It waits for nothing, neither for a leader nor for the disk.
func (l *life) Alive() error {
	if !l.isStopping() {
		return nil
	}
	return cmp.Or(l.Err(), ErrStopped)
}

func (l *life) isStopping() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
}

// fail stops the node because of err. It returns at once: its callers are the
// goroutines that the stop waits for.
func (l *life) fail(err error) {
	l.once.Do(func() {
		l.failure.Store(&err)
		l.log.Error("failed", "error", err)
		close(l.stopping)
	})
}

// sleep returns false if the node stops before d has passed.
func (l *life) sleep(d time.Duration) bool { return l.wait(context.Background(), d) == nil }

// wait returns after d, or says what came first: the end of ctx, or of the node.
func (l *life) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.stopping:
		return ErrStopped
	case <-time.After(d):
		return nil
	}
}
