package kvnode

import (
	"slices"
	"sync"
)

// token wakes one goroutine. It is buffered by one: a second one says nothing new before the
// first was taken.
type token chan struct{}

func newToken() token { return make(token, 1) }

func (t token) put() {
	select {
	case t <- struct{}{}:
	default:
	}
}

// box hands values from many goroutines to one. It never blocks a sender: what
// bounds it is said where it is used.
type box[T any] struct {
	wake token // the receiver
	mu   struct {
		sync.Mutex
		items []T
	}
}

func (b *box[T]) put(items ...T) {
	b.mu.Lock()
	b.mu.items = append(b.mu.items, items...)
	b.mu.Unlock()
	b.wake.put()
}

// take returns all there is, and keeps spare for what comes.
func (b *box[T]) take(spare []T) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(spare) // drops what its elements refer to
	taken := b.mu.items
	b.mu.items = spare[:0]
	return taken
}

// drop takes out the first value that is so, if it was not taken.
func (b *box[T]) drop(is func(T) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.IndexFunc(b.mu.items, is); i >= 0 {
		b.mu.items = slices.Delete(b.mu.items, i, i+1)
	}
}
