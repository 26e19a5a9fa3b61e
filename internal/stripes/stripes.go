// Package stripes spreads what many goroutines count over cache lines, so that cores that
// count at the same time do not wait for each other.
package stripes

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Count is how many stripes there are: a power of two, at most 16, and enough that two
// goroutines which run at the same time rarely share one.
var Count = func() int {
	n := 1
	for n < min(4*runtime.GOMAXPROCS(0), 16) {
		n *= 2
	}
	return n
}()

// Here returns the stripe of the goroutine that asks, by the address of its stack:
// goroutines that run at the same time have different ones, and no state is shared to
// choose. It may differ from call to call.
func Here() int {
	var here byte
	at := uintptr(unsafe.Pointer(&here)) >> 11
	at ^= at >> 5
	return int(at) & (Count - 1)
}

// Counter is a striped counter.
type Counter struct{ stripes []stripe }

type stripe struct {
	n atomic.Uint64
	_ [56]byte
}

// NewCounter returns a counter that is 0.
func NewCounter() *Counter { return &Counter{make([]stripe, Count)} }

// Add adds n. It allocates nothing.
func (c *Counter) Add(n uint64) { c.stripes[Here()].n.Add(n) }

// Load returns the sum.
func (c *Counter) Load() (sum uint64) {
	for i := range c.stripes {
		sum += c.stripes[i].n.Load()
	}
	return sum
}
