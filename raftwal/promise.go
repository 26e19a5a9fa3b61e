package raftwal

import (
	"fmt"
	"time"
)

// LoadMaxPromise returns what was saved last, or 0. With SaveMaxPromise it
// makes the log a leaderlease.PromiseStore.
func (l *Log) LoadMaxPromise() (time.Duration, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return 0, ErrClosed
	}
	return l.mu.view.promise, nil
}

// SaveMaxPromise returns once d is durable. It writes only if d has changed,
// which is seldom: a renewal does not wait for the disk.
func (l *Log) SaveMaxPromise(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("raftwal: max promise %v must not be negative", d)
	}
	l.w.Lock()
	defer l.w.Unlock()
	if l.w.failed != nil {
		return l.w.failed
	}
	if d == l.mu.view.promise {
		return nil
	}
	b := &l.w.batch
	b.reset(keepBuffer)
	b.promise(d)
	if err := l.write(b); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.view.promise = d
	return nil
}
