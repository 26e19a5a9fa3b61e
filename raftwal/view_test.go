package raftwal

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/leaderlease/go/raftwal/fs"
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

func TestTailKeepsBytes(t *testing.T) {
	const n, size = 100, 1000
	cfg := testConfig(fs.NewMemory())
	cfg.SegmentSize = 8 << 10 // so that the tail spans segments
	l := mustOpen(t, cfg)
	defer func() { must(t, l.Close()) }()
	if got := l.Tail(1 << 20); got != 0 {
		t.Errorf("Tail() of an empty log = %d, want 0", got)
	}
	must(t, l.Save(entries(1, 1, n+1, size), hard(1, 1, n), nil))
	if got := l.Tail(1 << 20); got != 0 {
		t.Errorf("Tail() of more than the log holds = %d, want 0: all stays", got)
	}
	if got := l.Tail(0); got != n-1 {
		t.Errorf("Tail(0) = %d, want %d: the last entry stays", got, n-1)
	}
	if got := l.Tail(20 * size); got < n-20 || got > n-15 {
		t.Errorf("Tail(%d) = %d, want some 20 entries of %d bytes before %d", 20*size, got, size, n)
	}
	must(t, l.SaveSnapshot(snapshot(1, 90)))
	must(t, l.Compact(90))
	if got := l.Tail(1 << 20); got != 90 {
		t.Errorf("Tail() of more than is left = %d, want 90, where the log begins", got)
	}
}
