package rawnode

import (
	"context"
	"sync"
	"sync/atomic"
)

// barrier lets goroutines wait until an index is applied.
type barrier struct {
	index atomic.Uint64
	mu    struct {
		sync.Mutex
		moved chan struct{} // closed when index moves; nil without waiters
	}
}

func (b *barrier) reach(index uint64) {
	b.index.Store(index)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.moved != nil {
		close(b.mu.moved)
		b.mu.moved = nil
	}
}

func (b *barrier) wait(ctx context.Context, index uint64) error {
	for b.index.Load() < index {
		b.mu.Lock()
		if b.mu.moved == nil {
			b.mu.moved = make(chan struct{})
		}
		moved := b.mu.moved
		b.mu.Unlock()
		if b.index.Load() >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// waiters are the requests that wait for an answer out of the raft loop.
type waiters struct {
	mu struct {
		sync.Mutex
		newest  uint64
		waiting map[uint64]*waiter
	}
	pool sync.Pool
}

// waiter is one request. It may be used again once it was answered.
type waiter struct {
	answer chan answer
	pool   *sync.Pool
}

type answer struct {
	index uint64
	err   error
}

func (w *waiters) add() (id uint64, done *waiter) {
	done, ok := w.pool.Get().(*waiter)
	if !ok {
		done = &waiter{answer: make(chan answer, 1), pool: &w.pool}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.waiting == nil {
		w.mu.waiting = make(map[uint64]*waiter)
	}
	w.mu.newest++
	w.mu.waiting[w.mu.newest] = done
	return w.mu.newest, done
}

// finish answers request id, unless it has an answer already.
func (w *waiters) finish(id, index uint64, err error) {
	w.mu.Lock()
	done := w.mu.waiting[id]
	delete(w.mu.waiting, id)
	w.mu.Unlock()
	if done != nil {
		done.answer <- answer{index, err}
	}
}

// unanswered returns the requests that wait.
func (w *waiters) unanswered() (ids []uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.mu.waiting {
		ids = append(ids, id)
	}
	return ids
}

func (w *waiter) wait(ctx context.Context) (index uint64, err error) {
	select {
	case a := <-w.answer:
		w.pool.Put(w)
		return a.index, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
