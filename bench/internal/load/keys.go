package load

import (
	"fmt"
	"math/rand/v2"
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
