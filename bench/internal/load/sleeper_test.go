package load

import (
	"slices"
	"testing"
	"time"
)

// A tenth of many short sleeps is on time even on a busy machine, if not each time; the
// runtime's own are all a millisecond.
func TestShortSleepsAreShort(t *testing.T) {
	s, err := NewSleeper()
	if err != nil {
		t.Fatal(err)
	}
	const d, late = 100 * time.Microsecond, 800 * time.Microsecond
	took := sleeps(s, d)
	for begun := time.Now(); took[20] > late && time.Since(begun) < 30*time.Second; {
		took = sleeps(s, d)
	}
	if took[0] < d {
		t.Errorf("the shortest sleep of %v took %v", d, took[0])
	}
	t.Logf("sleep of %v: median %v, p90 %v", d, took[100], took[180])
	if took[20] > late {
		t.Errorf("nine tenths of the sleeps of %v took %v and more: not better than the runtime's timers", d, took[20])
	}
	s.Sleep(-1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s.Sleep(d) // closed: returns
}

// sleeps returns how long each of 201 sleeps took, the shortest first.
func sleeps(s *Sleeper, d time.Duration) []time.Duration {
	took := make([]time.Duration, 201)
	for i := range took {
		begin := time.Now()
		s.Sleep(d)
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return took
}
