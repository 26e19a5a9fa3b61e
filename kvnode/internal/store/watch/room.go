package watch

import (
	"fmt"
	"sync/atomic"
)

const (
	// maxBytes is what all watchers of a member may take, about: two million small ones.
	// More: clients that do nothing but watch take a member's memory. Less: honest ones
	// are refused.
	maxBytes = 1 << 30
	// watcherBytes is what a watcher takes besides its keys, with its places in an index.
	watcherBytes = 512
)

// FullError says that a member's watchers may not take more memory.
type FullError struct {
	// Bytes are what the watcher that is refused would take, Taken what all others take, of
	// Most.
	Bytes, Taken, Most int64
}

// Error implements error. A client has only the text.
func (e *FullError) Error() string {
	return fmt.Sprintf("kvnode: a watch of %d bytes finds no room (ResourceExhausted): all others of this member take %d of %d bytes", e.Bytes, e.Taken, e.Most)
}

// room is the memory of all watchers.
type room struct {
	most  int64 // immutable
	taken atomic.Int64
}

// bytes is what a watcher takes: an index has its keys once more.
func (r *Request) bytes() int64 { return watcherBytes + 2*int64(len(r.Key)+len(r.End)) }

func (m *room) take(r *Request) error {
	bytes := r.bytes()
	if all := m.taken.Add(bytes); all > m.most {
		m.taken.Add(-bytes)
		return &FullError{Bytes: bytes, Taken: all - bytes, Most: m.most}
	}
	return nil
}

func (m *room) give(r *Request) { m.taken.Add(-r.bytes()) }
