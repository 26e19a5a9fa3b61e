// Package durations has histograms of durations, counters that many goroutines share, and a sleep that a context ends.
package durations

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Doubling returns n bounds, from the first on, of which each is twice the one before.
func Doubling(first time.Duration, n int) []time.Duration {
	bounds := make([]time.Duration, n)
	for i := range bounds {
		bounds[i] = first << i
	}
	return bounds
}

// Sleep returns nil after d, or ctx's cause as soon as ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Histogram counts durations. All methods are safe for concurrent use; concurrent
// calls write to the same cache line.
type Histogram struct {
	bounds   []time.Duration // immutable
	sum, max atomic.Int64
	// at[i] counts durations of at most bounds[i] that exceed the bound before; the last
	// element counts those above all bounds.
	at []atomic.Uint64
}

// New returns a histogram. The bounds must ascend.
func New(bounds []time.Duration) *Histogram {
	return &Histogram{bounds: bounds, at: make([]atomic.Uint64, len(bounds)+1)}
}

// Note counts a duration. It allocates nothing.
func (h *Histogram) Note(took time.Duration) {
	took = max(took, 0)
	i := 0
	for i < len(h.bounds) && took > h.bounds[i] {
		i++
	}
	h.at[i].Add(1)
	h.sum.Add(int64(took))
	for longest := h.max.Load(); int64(took) > longest && !h.max.CompareAndSwap(longest, int64(took)); {
		longest = h.max.Load()
	}
}

// Counts are the counts of a Histogram at some moment. The zero value counts nothing.
type Counts struct {
	Count    uint64
	Sum, Max time.Duration
	Bounds   []time.Duration
	// Within[i] counts the durations of at most Bounds[i].
	Within []uint64
}

// Load returns the counts. They are read one by one, not as of one moment.
func (h *Histogram) Load() Counts {
	c := Counts{Sum: time.Duration(h.sum.Load()), Max: time.Duration(h.max.Load()), Bounds: h.bounds, Within: make([]uint64, len(h.bounds))}
	for i := range h.at {
		c.Count += h.at[i].Load()
		if i < len(c.Within) {
			c.Within[i] = c.Count
		}
	}
	return c
}

// Buckets returns the cumulative counts by bounds in seconds, as Prometheus wants them.
func (c *Counts) Buckets() map[float64]uint64 {
	buckets := make(map[float64]uint64, len(c.Bounds))
	for i, bound := range c.Bounds {
		buckets[bound.Seconds()] = c.Within[i]
	}
	return buckets
}

// Striped is a Histogram for many goroutines that note at the same time.
type Striped struct{ stripes []*Histogram }

// NewStriped returns a histogram. The bounds must ascend.
func NewStriped(bounds []time.Duration) *Striped {
	s := &Striped{make([]*Histogram, Stripes)}
	for i := range s.stripes {
		s.stripes[i] = New(bounds)
	}
	return s
}

// Note counts a duration. It allocates nothing.
func (s *Striped) Note(took time.Duration) { s.stripes[Stripe()].Note(took) }

// Load returns the counts of all stripes together.
func (s *Striped) Load() Counts {
	all := s.stripes[0].Load()
	for _, h := range s.stripes[1:] {
		c := h.Load()
		all.Count += c.Count
		all.Sum += c.Sum
		all.Max = max(all.Max, c.Max)
		for i := range c.Within {
			all.Within[i] += c.Within[i]
		}
	}
	return all
}

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
