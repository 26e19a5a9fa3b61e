package raftwal

import (
	"testing"

	"github.com/leaderlease/go/raftwal/fs"
)

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
