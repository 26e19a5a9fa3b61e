package raftwal

import (
	"testing"

	"pgregory.net/rapid"
)

// slots behave like a slice, over several chunks.
func TestSlotsAreAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s slots
		var want []slot
		next := uint64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			n := rapid.IntRange(0, 3*chunkLen).Draw(t, "n")
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				for range n {
					next++
					s.push(slot{term: next})
					want = append(want, slot{term: next})
				}
			case 1:
				n = min(n, len(want))
				s.truncate(uint64(n))
				want = want[:n]
			default:
				n = min(n, len(want))
				s.drop(uint64(n))
				want = want[n:]
			}
			if s.len() != len(want) {
				t.Fatalf("len() = %d, want %d", s.len(), len(want))
			}
			got := s.appendTo(nil, 0, uint64(len(want)))
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("at(%d) = %v, want %v", i, got[i], want[i])
				}
			}
			if len(s.free) > maxFree {
				t.Fatalf("%d free chunks, want at most %d", len(s.free), maxFree)
			}
		}
	})
}
