package store

import (
	"bytes"
	"sync/atomic"
	"unsafe"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Version is what one write made of a key. It is shared and must not be changed. A nil
// one answers as the message of etcd's API does, whose getters it has but for one name.
//
// There is one for each key and write, so it is as small as can be: one cache line. It
// has no key of its own, and the message is made when it is asked for.
type Version struct {
	// All but prev is immutable once a chain leads to the version.

	// prev is the version before. The trimmer cuts it off, and it may do so while a reader
	// stands on this version: that reader then finds none, and looks whether its revision
	// was compacted (view.compacted).
	prev atomic.Pointer[Version]
	// of is the chain that has the key.
	of *chain
	// value is the first of size bytes, nil if there are none.
	value *byte
	size  uint32
	// sub numbers the writes of one revision.
	sub uint32

	mod, create int64
	// number counts the writes since the key was made. A tombstone's is 0, which no other's
	// is; it has no other numbers but mod and sub.
	number int64
	lease  int64
}

// setValue is for a version that nobody sees yet. No entry of the log has 4 GiB.
func (v *Version) setValue(value []byte) {
	v.value, v.size = unsafe.SliceData(value), uint32(len(value))
}

// GetKey returns the key, which is the store's own.
func (v *Version) GetKey() []byte {
	if v == nil {
		return nil
	}
	return v.of.key
}

// GetValue returns the value, which is the store's own.
func (v *Version) GetValue() []byte {
	if v == nil {
		return nil
	}
	return unsafe.Slice(v.value, v.size)
}

// GetModRevision returns the revision of the write.
func (v *Version) GetModRevision() int64 {
	if v == nil {
		return 0
	}
	return v.mod
}

// GetCreateRevision returns the revision that made the key.
func (v *Version) GetCreateRevision() int64 {
	if v == nil {
		return 0
	}
	return v.create
}

// GetVersion returns how many writes there were since then, with this one. It is 0 if
// the write deleted the key.
func (v *Version) GetVersion() int64 {
	if v == nil {
		return 0
	}
	return v.number
}

// GetTTLLease returns the TTL lease that the key is attached to, 0 if there is none.
func (v *Version) GetTTLLease() int64 {
	if v == nil {
		return 0
	}
	return v.lease
}

// Message returns the message of etcd's API, nil for nil. It shares key and value with
// the store.
func (v *Version) Message() *mvccpb.KeyValue {
	if v == nil {
		return nil
	}
	kv := &mvccpb.KeyValue{}
	v.Fill(kv)
	return kv
}

// Fill is Message for who has the memory. The version must not be nil.
func (v *Version) Fill(kv *mvccpb.KeyValue) {
	kv.Key, kv.Value = v.GetKey(), v.GetValue()
	kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease = v.create, v.mod, v.number, v.lease
}

func (v *Version) String() string { return v.Message().String() }

func (v *Version) tombstone() bool { return v.number == 0 }

// first reports whether there was no such key before.
func (v *Version) first() bool { return v.number == 1 }

// live returns v, or nil if it is a tombstone.
func (v *Version) live() *Version {
	if v == nil || v.tombstone() {
		return nil
	}
	return v
}

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
	for v != nil && v.mod > rev {
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
