package store

import (
	"bytes"
	"sync/atomic"
	"unsafe"
)

// chain is a key and its versions, newest first.
type chain struct {
	key []byte // immutable; versions share it
	// head is nil for a moment only, while a transaction is rolled back.
	head atomic.Pointer[Version]
}

// is reports whether c is the chain of key. nil is no key's.
func (c *chain) is(key []byte) bool { return c != nil && bytes.Equal(c.key, key) }

// newChain returns a chain without versions. It copies key, into the chain's own
// cache line if there is room: a look-up that compares the key has the head then.
func newChain(key []byte) *chain {
	var c *chain
	var room []byte
	switch {
	case len(key) <= 32:
		x := &struct {
			chain
			room [32]byte
		}{}
		c, room = &x.chain, x.room[:]
	case len(key) <= 96:
		x := &struct {
			chain
			room [96]byte
		}{}
		c, room = &x.chain, x.room[:]
	default:
		c, room = &chain{}, make([]byte, len(key))
	}
	n := copy(room, key)
	c.key = room[:n:n]
	return c
}

// at returns the newest version as of rev, nil if there is none. It may be a
// tombstone. It walks from the newest version on, since nearly all reads are of that: a
// read of an old revision costs a step for each write of the key since.
func (c *chain) at(rev int64) *Version {
	v := c.head.Load()
	for v != nil && v.main() > rev {
		v = v.prev.Load()
	}
	return v
}

// keyString returns key as a string without copying it: for a look-up, or for a
// key that never changes. A string whose bytes change afterwards would be lost in the map,
// so a key that is stored is the chain's own copy (newChain).
func keyString(key []byte) string {
	return unsafe.String(unsafe.SliceData(key), len(key))
}
