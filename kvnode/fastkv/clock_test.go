package fastkv

import (
	"testing"
	"time"
	"unsafe"
)

// A clock that is set says nothing about a stream: what counts is for how long it was silent.
func TestAClockThatIsSet(t *testing.T) {
	s := newStream(t.Context(), func() {}, nil)
	s.owed.Store(1)
	soon, late := s.opened.Add(pause/2), s.opened.Add(2*pause)
	for _, by := range []time.Duration{-time.Hour, 0, time.Hour} {
		if !s.usable(set(soon, by)) {
			t.Errorf("a stream that was silent for a moment is not used once the clock is set by %v", by)
		}
		if s.usable(set(late, by)) {
			t.Errorf("a stream that was silent for %v is used once the clock is set by %v", 2*pause, by)
		}
	}
}

// set returns what would have been read at now had the clock been set before. A time.Time has
// the wall clock's seconds from bit 30 of its first word on, and the monotonic clock in its
// second.
func set(now time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&now)) += uint64(by/time.Second) << 30
	return now
}
