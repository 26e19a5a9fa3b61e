package load

import "sync/atomic"

// Floor holds the newest version of each key that any operation has shown.
type Floor struct{ keys []atomic.Uint64 }

// NewFloor returns a floor of zero for keys 0 to keys−1.
func NewFloor(keys int) *Floor { return &Floor{keys: make([]atomic.Uint64, keys)} }

// At returns the version that a read of key which begins now may not be below.
func (f *Floor) At(key int) uint64 { return f.keys[key].Load() }

// Raise notes that an operation which has returned showed version.
func (f *Floor) Raise(key int, version uint64) {
	slot := &f.keys[key]
	for {
		// Most operations show nothing new; they only look.
		old := slot.Load()
		if version <= old || slot.CompareAndSwap(old, version) {
			return
		}
	}
}
