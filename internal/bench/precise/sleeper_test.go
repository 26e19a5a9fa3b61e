package precise

import (
	"slices"
	"testing"
	"time"
)

// Half of many short sleeps must be on time even on a busy machine; the runtime's
// own are all a millisecond.
func TestShortSleepsAreShort(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	const d = 100 * time.Microsecond
	took := make([]time.Duration, 201)
	for i := range took {
		begin := time.Now()
		s.Sleep(d)
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	if took[0] < d {
		t.Errorf("the shortest sleep of %v took %v", d, took[0])
	}
	t.Logf("sleep of %v: median %v, p90 %v", d, took[100], took[180])
	if took[20] > 800*time.Microsecond {
		t.Errorf("nine tenths of the sleeps of %v took %v and more: not better than the runtime's timers", d, took[20])
	}
	s.Sleep(-1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s.Sleep(d) // closed: returns
}
