package raftwal

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

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
// compacted without any help, in the steps of an application with a state of
// its own, and then goes on; again and again.
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
					flushWithoutUse(t, l, term)
					must(t, l.Save(nil, hard(term, 1, last), nil)) // put off
					if err := l.Flush(); err != nil {
						t.Fatalf("Flush() on a full disk = %v", err)
					}
					if err := l.SaveSnapshot(largest(t, at, last)); err != nil {
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

// largest is a snapshot that takes a third of the reserve, which is what the
// package's comment allows.
func largest(t *testing.T, term, index uint64) *raftpb.Snapshot {
	t.Helper()
	snap := snapshot(term, index)
	for {
		var b batch
		b.reset(0)
		must(t, b.snapshot(recordCheckpoint, snap))
		if int64(len(b.buf)-batchHeader) > reserve(minSegmentSize)/3 {
			snap.Data = snap.GetData()[1:]
			return snap
		}
		snap.Data = append(snap.GetData(), 'x')
	}
}

// flushWithoutUse calls Flush for every commit index that frees no segment.
func flushWithoutUse(t *testing.T, l *Log, term uint64) {
	t.Helper()
	for i := l.mu.view.base.index + 1; l.deadAfter(i) == 0; i++ {
		must(t, l.Save(nil, hard(term, 1, i), nil)) // put off
		if err := l.Flush(); err != nil && !errors.Is(err, ErrNoSpace) {
			t.Fatalf("Flush() on a full disk = %v", err)
		}
	}
}

// Whatever is tried on a full disk, and however often, a way is left to free a
// segment: nothing that does not lead there goes into what it needs.
func TestNothingUsesTheReserveUp(t *testing.T) {
	for _, tt := range []struct {
		segments int64
		segment  int64 // KiB
		size     int
	}{
		{2, 4, 1},
		{2, 4, 100},
		{2, 4, 700},
		{3, 4, 1},
		{3, 4, 700},
		{7, 4, 100},
		{7, 4, 700},
		{2, 32, 100},
		{3, 32, 3000},
		{2, 1024, 20000},
	} {
		t.Run(fmt.Sprintf("segments=%d/KiB=%d/entry=%d", tt.segments, tt.segment, tt.size), func(t *testing.T) {
			disk := fs.NewMemory()
			cfg := testConfig(disk)
			cfg.SegmentSize = tt.segment << 10
			l := mustOpen(t, cfg)
			disk.SetCapacity(tt.segments*cfg.SegmentSize + 7000)
			for round := range 6 {
				if round%2 == 0 {
					checkpointWithoutUse(t, l, tt.size)
				}
				last, term := saveUntilFull(t, l, tt.size)
				tryAll(t, l, term)
				compactFully(t, l)
				if err := l.Save(entries(term, last+1, last+2, tt.size), hard(term, 1, last), nil); err != nil {
					t.Fatalf("Save() after compaction = %v", err)
				}
				must(t, expectReopen(cfg, disk, last+1))
			}
			must(t, l.Close())
		})
	}
}

// checkpointWithoutUse appends entries until the log has two segments, and saves
// the last snapshot that frees none of them.
func checkpointWithoutUse(t *testing.T, l *Log, size int) {
	t.Helper()
	h, _, err := l.InitialState()
	must(t, err)
	for last := l.mu.view.last(); len(l.mu.segments) < 2; last++ {
		must(t, l.Save(entries(max(1, h.GetTerm()), last+1, last+2, size), nil, nil))
	}
	at := l.mu.view.base.index
	for l.deadAfter(at+1) == 0 {
		at++
	}
	if at <= l.mu.view.snap.GetMetadata().GetIndex() {
		return
	}
	term, err := l.Term(at)
	must(t, err)
	must(t, l.SaveSnapshot(snapshot(term, at)))
}

// tryAll calls everything at every index of a log on a full disk, but does not
// compact where that frees a segment.
func tryAll(t *testing.T, l *Log, term uint64) {
	t.Helper()
	refused := 0
	for i := l.mu.view.base.index + 1; i <= l.mu.view.last(); i++ {
		at, err := l.Term(i)
		must(t, err)
		must(t, l.Save(nil, hard(term, 1, i), nil)) // put off
		errs := []error{l.Flush(), l.SaveSnapshot(snapshot(at, i)), l.SaveLongestPromise(time.Duration(i))}
		if l.deadAfter(i) == 0 && i <= l.mu.view.snap.GetMetadata().GetIndex() {
			errs = append(errs, l.Compact(i))
		}
		for _, err := range errs {
			if errors.Is(err, ErrNoSpace) {
				refused++
			} else if err != nil && !errors.Is(err, raft.ErrSnapOutOfDate) {
				t.Fatalf("on a full disk, at %d: %v", i, err)
			}
		}
	}
	if refused == 0 {
		t.Fatal("nothing was refused: the disk is not full")
	}
}

// compactFully compacts up to the snapshot, after one at the end of the log if
// the reserve that is there does not free a segment.
func compactFully(t *testing.T, l *Log) {
	t.Helper()
	if l.deadAfter(l.mu.view.snap.GetMetadata().GetIndex()) == 0 {
		last := l.mu.view.last()
		at, err := l.Term(last)
		must(t, err)
		if err := l.SaveSnapshot(snapshot(at, last)); err != nil {
			t.Fatalf("SaveSnapshot() on a full disk = %v", err)
		}
	}
	segments := len(l.mu.segments)
	if err := l.Compact(l.mu.view.snap.GetMetadata().GetIndex()); err != nil {
		t.Fatalf("Compact() on a full disk = %v", err)
	}
	if len(l.mu.segments) >= segments {
		t.Fatalf("Compact() of %d segments has left %d", segments, len(l.mu.segments))
	}
}

// An installed snapshot leaves nothing to compact. What it has replaced is
// found when there is no other room.
func TestInstalledSnapshotFreesAFullDisk(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	must(t, fill(l, 2))
	disk.SetCapacity(disk.Used())
	must(t, l.Save(nil, hard(2, 1, 100), snapshot(2, 100)))
	last := uint64(100)
	for ; l.w.seg.id < 3; last++ {
		if err := l.Save(entries(2, last+1, last+2, 300), nil, nil); err != nil {
			t.Fatalf("Save() behind an installed snapshot on a full disk = %v", err)
		}
	}
	must(t, expectReopen(cfg, disk, last))
	must(t, l.Close())
}
