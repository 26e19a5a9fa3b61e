package lifecycle

import (
	"slices"
	"sync"
)

// Wakeup wakes one goroutine, which receives from it. Several calls of Wake before it receives count as one.
type Wakeup chan struct{}

// NewWakeup returns a Wakeup for one goroutine.
func NewWakeup() Wakeup { return make(Wakeup, 1) }

// Wake wakes the goroutine. It never blocks.
func (w Wakeup) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Mailbox hands values from many goroutines to one. It is unbounded and never blocks a sender, so its
// users bound what they push. Wakeup must be set before the first Push.
type Mailbox[T any] struct {
	Wakeup Wakeup // of the receiver
	mu     struct {
		sync.Mutex
		items []T
	}
}

// Push appends items and wakes the receiver.
func (b *Mailbox[T]) Push(items ...T) {
	b.mu.Lock()
	b.mu.items = append(b.mu.items, items...)
	b.mu.Unlock()
	b.Wakeup.Wake()
}

// Drain returns all items. The mailbox then fills the array of spare, so the caller must not use spare any more.
func (b *Mailbox[T]) Drain(spare []T) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(spare) // drops what its elements refer to
	items := b.mu.items
	b.mu.items = spare[:0]
	return items
}

// DeleteFirst deletes the first item for which match is true, if there is one.
func (b *Mailbox[T]) DeleteFirst(match func(T) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.IndexFunc(b.mu.items, match); i >= 0 {
		b.mu.items = slices.Delete(b.mu.items, i, i+1)
	}
}

// Len returns the number of items that have not been drained.
func (b *Mailbox[T]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.items)
}
