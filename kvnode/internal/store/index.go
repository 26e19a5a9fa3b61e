package store

import (
	"bytes"
	"sort"
	"sync"

	"github.com/tidwall/btree"
)

// chunk is how many keys a range reads under one lock. It bounds how long a range delays the write
// of a new key.
const chunk = 256

// index finds chains by key and in the order of keys. A chain is added to both structures before
// its first version is published, and removed from both when no readable revision has a version of
// it. While it is added or removed, a reader may find it in one of them only. That makes no difference,
// since the reader's view has no version of the key.
type index struct {
	// byKey serves point reads without a lock.
	byKey *table

	// ordered serves ranges. Only creating, deleting and finally removing a key takes the
	// write lock. An overwrite takes no lock.
	mu      sync.RWMutex
	ordered *btree.BTreeG[*chain] // under mu
	// dead holds the chains without a live version as of the revision in changed: deleted
	// keys, and keys that a transaction has just created. It makes the number of live keys in a
	// range computable from positions in the two trees.
	dead *btree.BTreeG[*chain] // under mu
	// changed is the newest revision that created or deleted a key. The trees reflect it before
	// readers see it. Under mu.
	changed int64
}

func newIndex() *index {
	return &index{byKey: newTable(), ordered: newTree(), dead: newTree()}
}

func newTree() *btree.BTreeG[*chain] {
	less := func(a, b *chain) bool { return bytes.Compare(a.key, b.key) < 0 }
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// find returns the chain of key, nil if there is none. It takes no lock and allocates nothing.
func (x *index) find(key []byte) *chain { return x.byKey.find(key) }

// add adds a chain. It counts as dead until updateDead sees its first version.
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

// updateDead updates dead for all versions of a revision. While there are readers, it is called after they are in
// the history and before the revision is published, so that a count can be reverted to the revision before.
func (x *index) updateDead(rev int64, versions ...*Version) {
	locked := false
	for _, v := range versions {
		if v.tombstone() == (v.prev.Load().live() == nil) {
			continue // live before and after, or dead before and after
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

// count returns the number of chains from key up to end, where an empty end means no bound, and how
// many of them are live as of the revision changed, which may be newer than the published revision.
func (x *index) count(key, end []byte) (all, live int, changed int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all = between(x.ordered, key, end)
	return all, all - between(x.dead, key, end), x.changed
}

// between returns the number of chains of t from key up to end.
func between(t *btree.BTreeG[*chain], key, end []byte) int {
	last := t.Len()
	if len(end) > 0 {
		last = rank(t, end)
	}
	return max(last-rank(t, key), 0)
}

// rank returns the number of chains below key. In a tree of a million chains the binary search
// needs about 20 look-ups by position, which the tree supports.
func rank(t *btree.BTreeG[*chain], key []byte) int {
	return sort.Search(t.Len(), func(i int) bool {
		c, _ := t.GetAt(i)
		return bytes.Compare(c.key, key) >= 0
	})
}

// next fills buf with chains from key up to end, where an empty end means no bound. after skips key
// itself: a range continues after the last key of its previous chunk, since the lock was released
// in between.
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
