package durations

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Stripes is the number of stripes over which counters are spread, so that cores that count at the same
// time do not share cache lines: a power of two, at most 16, and at least four for each processor below that.
var Stripes = func() int {
	n := 1
	for n < min(4*runtime.GOMAXPROCS(0), 16) {
		n *= 2
	}
	return n
}()

// Stripe returns a stripe for the calling goroutine, from the address of its stack. Goroutines that run
// at the same time mostly get different stripes, without shared state. The result may differ from call to call.
func Stripe() int {
	var here byte
	at := uintptr(unsafe.Pointer(&here)) >> 11
	at ^= at >> 5
	return int(at) & (Stripes - 1)
}

// Counter is a striped counter.
type Counter struct{ stripes []stripe }

type stripe struct {
	n atomic.Uint64
	_ [56]byte
}

// NewCounter returns a counter that is 0.
func NewCounter() *Counter { return &Counter{make([]stripe, Stripes)} }

// Add adds n. It allocates nothing.
func (c *Counter) Add(n uint64) { c.stripes[Stripe()].n.Add(n) }

// Load returns the sum.
func (c *Counter) Load() (sum uint64) {
	for i := range c.stripes {
		sum += c.stripes[i].n.Load()
	}
	return sum
}
