package store

import (
	"bytes"
	"sort"
	"sync"

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
	byKey *table

	// ordered serves ranges. Only a key that comes, or goes for good, takes the write lock;
	// another version of a key that is there touches no tree.
	mu      sync.RWMutex
	ordered *btree.BTreeG[*chain] // under mu
	// dead are the chains of ordered that have no live version as of revision changed: keys
	// that were deleted, and those that a transaction under way has made. So the others can
	// be counted by place, without a look at each (count).
	dead *btree.BTreeG[*chain] // under mu
	// changed is the newest revision that made a key or deleted one. The trees show it
	// before readers do. Under mu.
	changed int64
}

func newIndex() *index {
	return &index{byKey: newTable(), ordered: newTree(), dead: newTree()}
}

func newTree() *btree.BTreeG[*chain] {
	less := func(a, b *chain) bool { return bytes.Compare(a.key, b.key) < 0 }
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// find returns the chain of key, nil if there is none. It takes no lock and
// allocates nothing.
func (x *index) find(key []byte) *chain { return x.byKey.find(key) }

// add adds a chain, dead until note has heard of its first version.
func (x *index) add(c *chain) {
	x.byKey.add(c)
	x.mu.Lock()
	x.ordered.Set(c)
	x.dead.Set(c)
	x.mu.Unlock()
}

func (x *index) remove(c *chain) {
	x.byKey.remove(c)
	x.mu.Lock()
	x.ordered.Delete(c)
	x.dead.Delete(c)
	x.mu.Unlock()
}

// note is told of all versions of a revision, in order, once the history has them and
// before the revision is published: a count may then be taken back to the one before.
func (x *index) updateDead(rev int64, versions ...*Version) {
	locked := false
	for _, v := range versions {
		if v.tombstone() == (v.prev.Load().live() == nil) {
			continue // there before and after, or neither
		}
		if !locked {
			x.mu.Lock()
			locked = true
		}
		x.changed = rev
		if v.tombstone() {
			x.dead.Set(v.of)
		} else {
			x.dead.Delete(v.of)
		}
	}
	if locked {
		x.mu.Unlock()
	}
}

// count returns how many chains there are from key on and below end, no end meaning all;
// and how many of them have a live version as of revision changed, which may be newer than
// what readers see.
func (x *index) count(key, end []byte) (all, live int, changed int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all = between(x.ordered, key, end)
	return all, all - between(x.dead, key, end), x.changed
}

// between returns how many chains of a tree are from key on and below end.
func between(t *btree.BTreeG[*chain], key, end []byte) int {
	last := t.Len()
	if len(end) > 0 {
		last = rank(t, end)
	}
	return max(last-rank(t, key), 0)
}

// rank returns how many chains of a tree are below key. It asks for some twenty of a
// million by their place, which the tree finds by the sizes of its branches.
func rank(t *btree.BTreeG[*chain], key []byte) int {
	return sort.Search(t.Len(), func(i int) bool {
		c, _ := t.GetAt(i)
		return bytes.Compare(c.key, key) >= 0
	})
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
