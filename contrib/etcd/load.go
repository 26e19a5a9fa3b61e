package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// load writes a counter at one member after the other and reads it at all of them.
// A read that begins after a write was acknowledged must not return less.
type load struct {
	c            *cluster
	serializable bool
	acked        atomic.Int64
	reads, stale atomic.Int64
	cancel       context.CancelFunc
	wg           sync.WaitGroup
	mu           sync.Mutex
	first        string // stale read
}

func startLoad(ctx context.Context, c *cluster, serializable bool) *load {
	l := &load{c: c, serializable: serializable}
	ctx, l.cancel = context.WithCancel(ctx)
	l.wg.Go(func() { l.write(ctx) })
	for _, m := range c.members {
		l.wg.Go(func() { l.read(ctx, m) })
	}
	return l
}

func (l *load) write(ctx context.Context) {
	for n := 1; ctx.Err() == nil; n++ {
		if l.c.members[n%len(l.c.members)].put(ctx, n) == nil {
			l.acked.Store(int64(n))
		}
	}
}

func (l *load) read(ctx context.Context, m *member) {
	for ctx.Err() == nil {
		if l.judge(ctx, m) != nil {
			_ = pause(ctx)
		}
	}
}

// judge reads once at m.
func (l *load) judge(ctx context.Context, m *member) error {
	floor := l.acked.Load()
	got, err := m.get(ctx, l.serializable)
	if err != nil {
		return err
	}
	l.reads.Add(1)
	if int64(got) < floor && l.stale.Add(1) == 1 {
		l.mu.Lock()
		l.first = fmt.Sprintf("%s returned %d after %d was acknowledged", m.name, got, floor)
		l.mu.Unlock()
	}
	return nil
}

// stop ends the load and judges it.
func (l *load) stop() error {
	l.cancel()
	l.wg.Wait()
	fmt.Printf("load: %d writes acknowledged, %d reads, %d stale\n", l.acked.Load(), l.reads.Load(), l.stale.Load())
	if l.stale.Load() > 0 {
		return fmt.Errorf("%d of %d reads are stale: %s", l.stale.Load(), l.reads.Load(), l.first)
	}
	return nil
}
