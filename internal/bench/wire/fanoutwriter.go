package wire

import (
	"context"
	"errors"
	"time"
)

// write puts until the window is over.
func (r *fanOutRun) write(ctx context.Context) {
	start := time.Now()
	for n := int64(1); ; n++ {
		due := r.turn(ctx, start, n)
		if r.window.isOver() || ctx.Err() != nil {
			r.notBegun(due)
			return
		}
		err := r.puts.put(ctx, r.writer, n, due)
		r.window.note(r.result.Put, time.Since(due), err)
	}
}

// turn waits until put n may begin, and returns since when it is due.
func (r *fanOutRun) turn(ctx context.Context, start time.Time, n int64) time.Time {
	if r.Rate == 0 {
		r.keepUp(ctx, n)
		return time.Now()
	}
	nap := r.Sleep
	if nap == nil {
		nap = time.Sleep
	}
	due := start.Add(time.Duration(float64(n-1) / r.Rate * float64(time.Second)))
	nap(time.Until(due))
	return due
}

// errPutNotBegun is a put of an open loop that was due and had to wait for the
// one before until the end.
var errPutNotBegun = errors.New("wire: put not begun before the end, the one before took too long")

// notBegun counts the puts from one that was due then on.
func (r *fanOutRun) notBegun(due time.Time) {
	if r.Rate == 0 {
		return
	}
	step := time.Duration(float64(time.Second) / r.Rate)
	for ; time.Since(due) > step; due = due.Add(step) {
		r.result.Put.Fail(errPutNotBegun)
	}
}

// lookEvery is how often a writer that waits looks whether the window is over.
const lookEvery = 10 * time.Millisecond

// keepUp waits until the watchers have nearly all events of the puts before n, or
// the window is over.
func (r *fanOutRun) keepUp(ctx context.Context, n int64) {
	for (n-1-Ahead)*int64(r.Watchers) > r.seen.Load() && !r.window.isOver() && ctx.Err() == nil {
		select {
		case <-r.progress:
		case <-time.After(lookEvery):
		}
	}
}

// saw adds n events.
func (r *fanOutRun) saw(n int) {
	r.seen.Add(int64(n))
	select {
	case r.progress <- struct{}{}:
	default: // it will look anyway
	}
}
