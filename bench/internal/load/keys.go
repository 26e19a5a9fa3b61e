package load

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
)

// Keys says which keys are used, and how often each.
type Keys struct {
	Count int
	// Zipf is the exponent of a Zipf distribution, above 1; the first keys are
	// the hot ones. 0 makes all keys equally likely.
	Zipf float64
}

// Validate reports what is wrong with k.
func (k Keys) Validate() error {
	if k.Count < 1 {
		return fmt.Errorf("number of keys %d must be at least 1", k.Count)
	}
	if k.Zipf != 0 && k.Zipf <= 1 {
		return fmt.Errorf("zipf exponent %v must be above 1, or 0 for uniform keys", k.Zipf)
	}
	return nil
}

// chooser returns a source of keys for one client.
func (k Keys) chooser(r *rand.Rand) func() int {
	switch {
	case k.Count == 1:
		return func() int { return 0 }
	case k.Zipf == 0:
		return func() int { return r.IntN(k.Count) }
	default:
		z := rand.NewZipf(r, k.Zipf, 1, uint64(k.Count-1))
		return func() int { return int(z.Uint64()) }
	}
}

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
