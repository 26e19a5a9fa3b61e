// Package lifecycle starts and stops the goroutines of a member, and lets them wake one another.
//
// Every component of kvnode.Node shares one Lifecycle: a component that cannot go on calls Fail, and
// each goroutine returns when Stopping is closed. Mailbox and Wakeup hand values to a goroutine without
// blocking the sender. LogLimit limits how often a condition is logged for each peer.
package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// ErrStopped means that the member has stopped, or is about to.
var ErrStopped = errors.New("kvnode: stopped")

// Lifecycle is the state of a member: it runs, is stopping, or has stopped. Its methods are safe for concurrent use.
type Lifecycle struct {
	log      *slog.Logger
	stopping chan struct{}
	stopped  chan struct{}
	workers  sync.WaitGroup
	once     sync.Once // closes stopping
	failure  atomic.Pointer[error]
}

// New returns the lifecycle of a member that runs.
func New(log *slog.Logger) *Lifecycle {
	return &Lifecycle{log: log, stopping: make(chan struct{}), stopped: make(chan struct{})}
}

// Go runs f on a goroutine that Wait waits for. f returns when Stopping is closed.
func (l *Lifecycle) Go(f func()) { l.workers.Go(f) }

// Wait returns when all functions that Go has started have returned.
func (l *Lifecycle) Wait() { l.workers.Wait() }

// Stop closes Stopping. It returns at once.
func (l *Lifecycle) Stop() { l.once.Do(func() { close(l.stopping) }) }

// Fail stops the member because of err. It does not wait for that, so a goroutine started by Go may call it. Only the
// first call of Stop or Fail has an effect.
func (l *Lifecycle) Fail(err error) {
	l.once.Do(func() {
		l.failure.Store(&err)
		l.log.Error("failed", "error", err)
		close(l.stopping)
	})
}

// Stopping is closed when the member begins to stop.
func (l *Lifecycle) Stopping() <-chan struct{} { return l.stopping }

// IsStopping reports whether Stopping is closed.
func (l *Lifecycle) IsStopping() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
}

// MarkStopped closes Done. The member calls it once, when everything has ended.
func (l *Lifecycle) MarkStopped() { close(l.stopped) }

// Done is closed when the member has stopped.
func (l *Lifecycle) Done() <-chan struct{} { return l.stopped }

// Err returns why the member failed, nil if it did not.
func (l *Lifecycle) Err() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Alive returns nil while the member runs, and else Err, or ErrStopped after Stop. It never blocks.
func (l *Lifecycle) Alive() error {
	if !l.IsStopping() {
		return nil
	}
	return cmp.Or(l.Err(), ErrStopped)
}

// Sleep returns true after d, or false as soon as the member begins to stop.
func (l *Lifecycle) Sleep(d time.Duration) bool {
	return l.SleepContext(context.Background(), d) == nil
}

// SleepContext returns nil after d. If ctx ends first it returns the cause, and if the member begins
// to stop first, ErrStopped.
func (l *Lifecycle) SleepContext(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.stopping:
		return ErrStopped
	case <-time.After(d):
		return nil
	}
}
