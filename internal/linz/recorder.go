package linz

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Recorder collects the operations of many clients. Its zero value is not
// usable; see NewRecorder.
type Recorder struct {
	now func() time.Duration // immutable; one clock for all clients

	mu struct {
		sync.Mutex
		clients []*Client
	}
}

// NewRecorder returns an empty recorder. Its clock starts now.
func NewRecorder() *Recorder {
	base := time.Now()
	return &Recorder{now: func() time.Duration { return time.Since(base) }}
}

// Client returns a new client. Clients are numbered from 0.
func (r *Recorder) Client() *Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &Client{id: len(r.mu.clients), now: r.now}
	r.mu.clients = append(r.mu.clients, c)
	return c
}

// History returns what all clients have recorded, ordered by call. Operations
// under way are unknown. No client may be in use meanwhile.
func (r *Recorder) History() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Op
	for _, c := range r.mu.clients {
		all = append(all, c.ops...)
	}
	slices.SortStableFunc(all, byCall)
	return all
}

// Client records the operations of one goroutine, one at a time, into a buffer
// of its own: recording costs two clock readings and no lock.
type Client struct {
	id  int
	now func() time.Duration

	ops []Op // touched by the client's goroutine only
}

// Call records that an operation starts; call it right before the request is
// made. The operation's outcome is Unknown until Return says otherwise.
func (c *Client) Call(op Op) {
	op.Client, op.Outcome = c.id, Unknown
	c.ops = append(c.ops, op)
	c.ops[len(c.ops)-1].Call = c.now()
}

// Return ends the operation that Call started; call it right after the answer.
// Answer fills in Outcome and, if that is OK, Revision, Swapped and Seen.
func (c *Client) Return(answer func(*Op)) {
	at := c.now()
	op := &c.ops[len(c.ops)-1]
	answer(op)
	op.Return = at
}

// Keys names keys for a load so that no key's history outgrows MaxOps: the load
// uses a slot as one key, and the slot gets a new name from time to time.
// It is safe for concurrent use.
type Keys struct {
	prefix string // immutable
	limit  uint64 // operations on one name

	slots []atomic.Uint64 // operations started, in names of limit each
}

// NewKeys returns slots keys with names that begin with prefix, each renamed after
// limit operations, at most MaxOps.
func NewKeys(prefix string, slots, limit int) *Keys {
	return &Keys{
		prefix: prefix,
		limit:  uint64(min(max(limit, 1), MaxOps)),
		slots:  make([]atomic.Uint64, slots),
	}
}

// Key returns the name for one operation on slot.
func (k *Keys) Key(slot int) string {
	name := (k.slots[slot].Add(1) - 1) / k.limit
	return fmt.Sprintf("%s%d/%d", k.prefix, slot, name)
}

// Len returns the number of slots.
func (k *Keys) Len() int { return len(k.slots) }

// Rename gives each slot a new name. Unknown outcomes of the old keys do not affect the new ones.
func (k *Keys) Rename() {
	for i := range k.slots {
		for {
			n := k.slots[i].Load()
			if k.slots[i].CompareAndSwap(n, (n/k.limit+1)*k.limit) {
				break
			}
		}
	}
}
