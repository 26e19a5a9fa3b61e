package bench_test

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease"
)

// reads is a mode at work on one node.
type reads interface {
	// read returns once the state machine may answer.
	read(ctx context.Context) error
	// run is the mode's own goroutine, for as long as the cluster runs.
	run(ctx context.Context)
	// answer is called by the raft loop.
	answer(s raft.ReadState)
}

func newReads(mode Mode, n *node) reads {
	if mode == Lease {
		return &leaseReads{lease: n.lease}
	}
	r := &batchedReads{node: n, wake: make(chan struct{}, 1), answers: make(chan raft.ReadState, 64)}
	r.mu.next = &batch{done: make(chan struct{})}
	return r
}

// leaseReads serves with leaderlease, which does everything by itself.
type leaseReads struct{ lease *leaderlease.Lease }

func (r *leaseReads) read(ctx context.Context) error {
	_, err := r.lease.Read(ctx)
	return err
}

func (*leaseReads) run(context.Context)   {}
func (*leaseReads) answer(raft.ReadState) {}

// batchedReads is etcd's linearizableReadLoop (server/etcdserver/v3_server.go):
// reads that arrive while a round is under way share the next one.
type batchedReads struct {
	node    *node
	wake    chan struct{}
	answers chan raft.ReadState

	mu struct {
		sync.RWMutex
		next *batch // what reads that arrive now wait for
	}
}

type batch struct {
	done chan struct{}
	err  error // set before done is closed
}

func (r *batchedReads) read(ctx context.Context) error {
	r.mu.RLock()
	b := r.mu.next
	r.mu.RUnlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *batchedReads) run(ctx context.Context) {
	for id := uint64(1); ; id++ {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		next := &batch{done: make(chan struct{})}
		r.mu.Lock()
		b := r.mu.next
		r.mu.next = next
		r.mu.Unlock()
		b.err = r.round(ctx, id)
		close(b.done)
	}
}

// retryInterval is etcd's.
const retryInterval = 500 * time.Millisecond

// round asks raft for an index and waits until it is applied.
func (r *batchedReads) round(ctx context.Context, id uint64) error {
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	rctx := binary.BigEndian.AppendUint64(nil, id)
	for {
		select {
		case r.node.readIndex <- rctx:
		case <-ctx.Done():
			return ctx.Err()
		}
		for asked := true; asked; {
			select {
			case s := <-r.answers:
				if string(s.RequestCtx) == string(rctx) {
					return r.node.applied.wait(ctx, s.Index)
				}
			case <-retry.C:
				asked = false
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func (r *batchedReads) answer(s raft.ReadState) {
	select {
	case r.answers <- s:
	default: // answers to rounds that were given up
	}
}

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

// waiters are the writes that wait for an answer out of the raft loop.
type waiters struct {
	mu struct {
		sync.Mutex
		newest  uint64
		waiting map[uint64]chan answer
	}
}

type answer struct {
	index uint64
	err   error
}

func (w *waiters) add() (id uint64, done <-chan answer) {
	to := make(chan answer, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.waiting == nil {
		w.mu.waiting = make(map[uint64]chan answer)
	}
	w.mu.newest++
	w.mu.waiting[w.mu.newest] = to
	return w.mu.newest, to
}

// finish answers request id, unless it has an answer already.
func (w *waiters) finish(id, index uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if done, ok := w.mu.waiting[id]; ok {
		delete(w.mu.waiting, id)
		done <- answer{index, err}
	}
}
