package store

import (
	"bytes"
	"sync/atomic"
	"unsafe"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Version is the result of one write of a key. It is shared and must not be changed. Like a
// protobuf message, a nil Version answers all getters with zero values.
//
// The store keeps one Version for each write, so its size is one cache line. It has no copy of the
// key, and the etcd message is built on demand.
type Version struct {
	// All fields but prev are immutable once a chain contains the version.

	// prev is the version before. Freeing sets it to nil, even while a reader is at this
	// version. That reader finds nothing, and then checks for a compaction (view.compacted).
	prev atomic.Pointer[Version]
	// of is the chain, which has the key.
	of *chain
	// value points to the first of size bytes. It is nil for an empty value.
	value *byte
	size  uint32
	// sub numbers the writes of one revision.
	sub uint32

	mod, create int64
	// number is etcd's version: the number of writes since the key was created. It is 0 for a
	// tombstone, which has no create revision and no lease either.
	number int64
	lease  int64
}

// setValue must be called before a chain contains v. Entries are smaller than 4 GiB.
func (v *Version) setValue(value []byte) {
	v.value, v.size = unsafe.SliceData(value), uint32(len(value))
}

// GetKey returns the key. It is shared with the store.
func (v *Version) GetKey() []byte {
	if v == nil {
		return nil
	}
	return v.of.key
}

// GetValue returns the value. It is shared with the store.
func (v *Version) GetValue() []byte {
	if v == nil {
		return nil
	}
	return unsafe.Slice(v.value, v.size)
}

// GetModRevision returns the revision of this write.
func (v *Version) GetModRevision() int64 {
	if v == nil {
		return 0
	}
	return v.mod
}

// GetCreateRevision returns the revision that created the key.
func (v *Version) GetCreateRevision() int64 {
	if v == nil {
		return 0
	}
	return v.create
}

// GetVersion returns the number of writes since the key was created, including this one. It is 0
// for a deletion.
func (v *Version) GetVersion() int64 {
	if v == nil {
		return 0
	}
	return v.number
}

// GetTTLLease returns the ID of the key's TTL lease, 0 for none.
func (v *Version) GetTTLLease() int64 {
	if v == nil {
		return 0
	}
	return v.lease
}

// Message returns the etcd message of v, nil for nil. It shares key and value with the store.
func (v *Version) Message() *mvccpb.KeyValue {
	if v == nil {
		return nil
	}
	kv := &mvccpb.KeyValue{}
	v.Fill(kv)
	return kv
}

// Fill writes the etcd message of v to kv, as Message does. v must not be nil.
func (v *Version) Fill(kv *mvccpb.KeyValue) {
	kv.Key, kv.Value = v.GetKey(), v.GetValue()
	kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease = v.create, v.mod, v.number, v.lease
}

func (v *Version) String() string { return v.Message().String() }

func (v *Version) tombstone() bool { return v.number == 0 }

// first reports whether this write created the key.
func (v *Version) first() bool { return v.number == 1 }

// live returns v, or nil if it is a tombstone.
func (v *Version) live() *Version {
	if v == nil || v.tombstone() {
		return nil
	}
	return v
}

// chain holds the versions of one key, newest first.
type chain struct {
	key []byte // immutable, shared by all versions
	// For readers, head is nil only while a transaction that created the key is rolled back.
	head atomic.Pointer[Version]
}

// is reports whether c is the chain of key. A nil chain belongs to no key.
func (c *chain) is(key []byte) bool { return c != nil && bytes.Equal(c.key, key) }

// newChain returns a chain without versions. It copies key into the chain's allocation if it is
// short enough, so a look-up that compares keys loads head with the same cache line.
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

// at returns the newest version at rev, which may be a tombstone, or nil. It walks from the newest
// version, because most reads want that one. A read of an old revision takes one step for each
// later write of the key.
func (c *chain) at(rev int64) *Version {
	v := c.head.Load()
	for v != nil && v.mod > rev {
		v = v.prev.Load()
	}
	return v
}

// keyString returns key as a string without copying it. The caller must not change key while the
// string is in use. Maps store the chain's own key, which never changes.
func keyString(key []byte) string {
	return unsafe.String(unsafe.SliceData(key), len(key))
}
