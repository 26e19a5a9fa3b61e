package raftwal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/leaderlease/go/raftwal/fs"
)

// saveUntilFull appends entries, then hard states, until neither finds room, and
// returns the last index and term.
func saveUntilFull(t *testing.T, l *Log, size int) (last, term uint64) {
	t.Helper()
	h, _, err := l.InitialState()
	must(t, err)
	term, last = max(1, h.GetTerm()), l.mu.view.last()
	for ; size > 0; size /= 2 {
		for err = nil; err == nil; {
			if err = l.Save(entries(term, last+1, last+2, size), hard(term, 1, 0), nil); err == nil {
				last++
			}
		}
		if !errors.Is(err, ErrNoSpace) {
			t.Fatalf("Save() on a full disk = %v, want %v", err, ErrNoSpace)
		}
	}
	for err = nil; err == nil; {
		if err = l.Save(nil, hard(term+1, 1, 0), nil); err == nil {
			term++
		}
	}
	if !errors.Is(err, ErrNoSpace) {
		t.Fatalf("Save() of a vote on a full disk = %v, want %v", err, ErrNoSpace)
	}
	return last, term
}

// A log that has filled its disk, entry by entry and then vote by vote, can be
// compacted without any help, and then goes on; again and again.
func TestFullDiskIsFreedByCompaction(t *testing.T) {
	for _, segments := range []int64{2, 3, 7} {
		for _, size := range []int{1, 100, 700, 6000} {
			t.Run(fmt.Sprintf("segments=%d/entry=%d", segments, size), func(t *testing.T) {
				disk := fs.NewMemory()
				cfg := testConfig(disk)
				l := mustOpen(t, cfg)
				disk.SetCapacity(segments*minSegmentSize + 7000)
				for range 5 {
					last, term := saveUntilFull(t, l, size)
					at, err := l.Term(last)
					must(t, err)
					if err := l.SaveSnapshot(snapshot(at, last)); err != nil {
						t.Fatalf("SaveSnapshot() on a full disk = %v", err)
					}
					if err := l.Compact(last); err != nil {
						t.Fatalf("Compact() on a full disk = %v", err)
					}
					if err := l.Save(entries(term, last+1, last+2, min(size, 700)), hard(term, 1, last), nil); err != nil {
						t.Fatalf("Save() after compaction = %v", err)
					}
					must(t, expectReopen(cfg, disk, last+1))
				}
				must(t, l.Close())
			})
		}
	}
}
