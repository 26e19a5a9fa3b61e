package store

import (
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

func (v *Version) main() int64 { return v.mod }

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
