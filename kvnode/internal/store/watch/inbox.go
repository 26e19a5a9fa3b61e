package watch

import (
	"sync"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// The inbox holds up to so many events, of so many bytes, which the hub has not
// come to. What exceeds it is left to the history.
const (
	inboxEvents = 1 << 16
	inboxBytes  = 64 << 20
)

// inbox is what Apply has left for the hub.
type inbox struct {
	maxEvents, maxBytes int // immutable

	mu struct {
		sync.Mutex
		revisions []revision
		events    int
		bytes     int
	}
}

// revision is the events of one, or word that all up to it have to be fetched
// from the history.
type revision struct {
	number int64
	writes []store.Write
	missed bool
}

// put adds the events of a revision.
func (b *inbox) put(number int64, writes []store.Write) {
	size := 0
	for _, w := range writes {
		size += writeSize(w)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.events+len(writes) > b.maxEvents || b.mu.bytes+size > b.maxBytes {
		b.missLocked(number)
		return
	}
	b.mu.revisions = append(b.mu.revisions, revision{number: number, writes: writes})
	b.mu.events += len(writes)
	b.mu.bytes += size
}

// miss notes that the events up to a revision are not given.
func (b *inbox) miss(number int64) {
	b.mu.Lock()
	b.missLocked(number)
	b.mu.Unlock()
}

func (b *inbox) missLocked(number int64) {
	if n := len(b.mu.revisions); n > 0 && b.mu.revisions[n-1].missed {
		b.mu.revisions[n-1].number = number
		return
	}
	b.mu.revisions = append(b.mu.revisions, revision{number: number, missed: true})
}

// take returns what is there, and keeps spare for what comes.
func (b *inbox) take(spare []revision) []revision {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.events, b.mu.bytes = 0, 0
	clear(spare) // drops what its elements refer to
	taken := b.mu.revisions
	b.mu.revisions = spare[:0]
	return taken
}

func writeSize(w store.Write) int {
	return eventOverhead + len(w.KV.GetKey()) + len(w.KV.GetValue()) + len(w.Prev.GetKey()) + len(w.Prev.GetValue())
}
