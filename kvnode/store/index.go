package store

import (
	"bytes"
	"sync"

	"github.com/puzpuzpuz/xsync/v4"
	"github.com/tidwall/btree"
)

// chunk is how many keys of the ordered index are read under one lock, so for
// how long a range holds up a write of a new key.
const chunk = 256

// index finds chains, by key and in the order of keys. A chain is in both before the
// revision of its first version is published, and leaves both only when no revision that
// can be read has a version of it. In between a reader may see it in one and not in the
// other, which tells it the same: its view has no such key.
type index struct {
	// byKey serves reads of one key, without a lock.
	byKey *xsync.Map[string, *chain]

	// ordered serves ranges. Only a key that is new or gone for good takes the write lock;
	// another version of a known key does not touch the tree.
	mu      sync.RWMutex
	ordered *btree.BTreeG[*chain] // under mu
}

func newIndex() *index {
	less := func(a, b *chain) bool { return bytes.Compare(a.key, b.key) < 0 }
	return &index{
		byKey:   xsync.NewMap[string, *chain](),
		ordered: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}),
	}
}

// find returns the chain of key, nil if there is none. It takes no lock and
// allocates nothing.
func (x *index) find(key []byte) *chain {
	c, _ := x.byKey.Load(keyString(key))
	return c
}

func (x *index) add(c *chain) {
	x.byKey.Store(c.name(), c)
	x.mu.Lock()
	x.ordered.Set(c)
	x.mu.Unlock()
}

func (x *index) remove(c *chain) {
	x.byKey.Delete(c.name())
	x.mu.Lock()
	x.ordered.Delete(c)
	x.mu.Unlock()
}

// next fills buf with the chains from key on that are below end; no end means
// all. With after set, key itself is left out: that is how a range goes on behind the
// last key of the chunk before, with the lock released in between.
func (x *index) next(buf []*chain, key, end []byte, after bool) []*chain {
	buf = buf[:0]
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.ordered.Ascend(&chain{key: key}, func(c *chain) bool {
		if after && bytes.Equal(c.key, key) {
			return true
		}
		if len(end) > 0 && bytes.Compare(c.key, end) >= 0 {
			return false
		}
		buf = append(buf, c)
		return len(buf) < cap(buf)
	})
	return buf
}
