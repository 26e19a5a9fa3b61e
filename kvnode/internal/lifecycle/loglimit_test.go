package lifecycle

import (
	"testing"
	"testing/synctest"
	"time"
)

// Each peer has one line in an interval, Reset allows the next one, and the memory is bounded.
func TestLogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l LogLimit
		for peer := range uint64(10 * maxPeers) {
			if got := l.Allow(peer); got != (peer < maxPeers) {
				t.Fatalf("Allow(%d) = %v, want %v", peer, got, !got)
			}
		}
		if len(l.next) > maxPeers {
			t.Errorf("%d peers are remembered, want at most %d", len(l.next), maxPeers)
		}
		if l.Allow(1) {
			t.Error("a second Allow() within the interval = true, want false")
		}
		if l.Reset(1); !l.Allow(1) {
			t.Error("Allow() after Reset() = false, want true")
		}
		if time.Sleep(logInterval); !l.Allow(1) {
			t.Error("Allow() after the interval = false, want true")
		}
	})
}
