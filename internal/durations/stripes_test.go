package durations

import (
	"sync"
	"testing"
	"unsafe"
)

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
