package linz

import (
	"fmt"
	"sync/atomic"
)

// Keys names keys for a load so that no key's history outgrows MaxOps: a slot
// is what the load thinks of as one key, and gets a new name from time to time.
// Any goroutine may use it.
type Keys struct {
	prefix string // immutable
	limit  uint64 // operations on one name

	slots []atomic.Uint64 // operations started, in names of limit each
}

// NewKeys returns slots keys whose names begin with prefix, each renamed after
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

// Rename gives each slot a new name, which ends what is open on the old.
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
