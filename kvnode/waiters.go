package kvnode

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/leaderlease/go/kvnode/store"
)

// waiters are the proposals of this member that are under way, by ID.
type waiters struct {
	maxCount int   // immutable
	maxBytes int64 // immutable
	nextID   atomic.Uint64
	mu       struct {
		sync.Mutex
		all   map[uint64]*waiter
		bytes int64
	}
}

type waiter struct {
	bytes int64
	// proposed means that raft has taken it: from then on it may take effect.
	proposed bool
	done     chan outcome // buffered by one
}

type outcome struct {
	result store.Result
	err    error
}

// init begins the IDs at random: what a member proposed before it was restarted
// may still be applied, and must not wake anybody.
func (w *waiters) init(maxCount int, maxBytes int64) {
	w.maxCount, w.maxBytes = maxCount, maxBytes
	w.mu.all = make(map[uint64]*waiter)
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	w.nextID.Store(binary.BigEndian.Uint64(seed[:]))
}

// id returns a new ID, which is not 0.
func (w *waiters) id() uint64 {
	for {
		if id := w.nextID.Add(1); id != 0 {
			return id
		}
	}
}

// add registers a proposal of that size, or refuses it.
func (w *waiters) add(id uint64, bytes int64) (*waiter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.all) >= w.maxCount || w.mu.bytes+bytes > w.maxBytes {
		return nil, ErrTooManyRequests
	}
	p := &waiter{bytes: bytes, done: make(chan outcome, 1)}
	w.mu.all[id] = p
	w.mu.bytes += bytes
	return p, nil
}

func (w *waiters) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.all)
}

// remove forgets a proposal, and returns it if it was there.
func (w *waiters) remove(id uint64) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removeLocked(id)
}

func (w *waiters) removeLocked(id uint64) *waiter {
	p := w.mu.all[id]
	if p != nil {
		delete(w.mu.all, id)
		w.mu.bytes -= p.bytes
	}
	return p
}

// finish tells whoever waits for r.
func (w *waiters) finish(r store.Result) {
	if r.ID == 0 {
		return
	}
	if p := w.remove(r.ID); p != nil {
		p.done <- outcome{result: r}
	}
}

// fail tells whoever waits for id that it will not be known what became of it.
func (w *waiters) fail(id uint64, err error) {
	if p := w.remove(id); p != nil {
		p.done <- outcome{err: err}
	}
}

// propose marks those that raft is about to take, and returns the ones that
// somebody still waits for.
func (w *waiters) propose(ps []proposal) []proposal {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := ps[:0]
	for _, p := range ps {
		if q := w.mu.all[p.id]; q != nil {
			q.proposed = true
			kept = append(kept, p)
		}
	}
	return kept
}

// awaited returns those of ps that somebody still waits for: nobody waits for ever, so
// what waits for a leader that does not come stays bounded.
func (w *waiters) awaited(ps []proposal) []proposal {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(ps, func(p proposal) bool { return w.mu.all[p.id] == nil })
}

// park takes back propose: raft has not taken them after all.
func (w *waiters) park(ps []proposal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range ps {
		if q := w.mu.all[p.id]; q != nil {
			q.proposed = false
		}
	}
}

// failProposed fails everything that raft has taken.
func (w *waiters) failProposed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, p := range w.mu.all {
		if p.proposed {
			w.removeLocked(id)
			p.done <- outcome{err: err}
		}
	}
}

// failAll fails everything, when the node stops.
func (w *waiters) failAll(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, p := range w.mu.all {
		w.removeLocked(id)
		p.done <- outcome{err: err}
	}
}
