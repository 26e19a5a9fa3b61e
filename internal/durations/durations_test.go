package durations

import (
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"
)

func TestBuckets(t *testing.T) {
	h := New(Doubling(time.Millisecond, 3))
	for _, d := range []time.Duration{-1, time.Millisecond, time.Millisecond + 1, 4 * time.Millisecond, 5 * time.Millisecond} {
		h.Note(d)
	}
	c := h.Load()
	if got, want := fmt.Sprint(c.Buckets()), "map[0.001:2 0.002:3 0.004:4]"; got != want || c.Count != 5 {
		t.Errorf("Buckets() = %s of %d, want %s of 5: a bound is within", got, c.Count, want)
	}
	if c.Sum != 11*time.Millisecond+1 || c.Max != 5*time.Millisecond {
		t.Errorf("Sum, Max = %v, %v, want 11.000001ms, 5ms", c.Sum, c.Max)
	}
	if n := testing.AllocsPerRun(100, func() { h.Note(time.Second) }); n != 0 {
		t.Errorf("Note() allocates %v times", n)
	}
}

func TestStripedAddsUp(t *testing.T) {
	s := NewStriped(Doubling(time.Millisecond, 2))
	for i, h := range s.stripes {
		h.Note(time.Duration(i) * time.Second)
	}
	s.Note(time.Millisecond)
	n := uint64(len(s.stripes))
	if c := s.Load(); c.Count != n+1 || c.Within[1] != 2 || c.Max != time.Duration(n-1)*time.Second || c.Sum != time.Duration(n*(n-1)/2)*time.Second+time.Millisecond {
		t.Errorf("Load() = %+v of %d stripes", c, n)
	}
}

func TestCounterLosesNothing(t *testing.T) {
	c := NewCounter()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				c.Add(2)
			}
		})
	}
	wg.Wait()
	if got := c.Load(); got != 16_000 {
		t.Errorf("Load() = %d, want 16000", got)
	}
	if size := unsafe.Sizeof(stripe{}); size != 64 {
		t.Errorf("a stripe has %d bytes, want a cache line", size)
	}
}
