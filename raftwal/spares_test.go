package raftwal

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/raftwal/fs"
)

// behind returns a log that makes its spares in the background, within a bubble.
func behind(t *testing.T, disk fs.FS) *Log {
	cfg := testConfig(disk)
	cfg.Inline = false
	cfg.SegmentSize = 64 << 10
	return mustOpen(t, cfg)
}

// saveTo saves entries of 1000 bytes until a share of the newest segment is used, and the
// background has done what it asks for.
func saveTo(t *testing.T, l *Log, percent int64) {
	t.Helper()
	for l.w.tail.end*100 < l.cfg.SegmentSize*percent {
		next := l.mu.view.last() + 1
		must(t, l.Save(entries(1, next, next+1, 1000), hard(1, 1, next-1), nil))
		synctest.Wait()
	}
}

// spareSizes are those of the spares on the disk.
func spareSizes(t *testing.T, disk *fs.Memory) (sizes []int64) {
	t.Helper()
	files, err := list(disk)
	must(t, err)
	for _, id := range files.spares {
		sizes = append(sizes, int64(len(disk.Bytes(spareName(id)))))
	}
	return sizes
}

// The spare grows with the second half of the segment, so that no sync of the log waits for
// all of it.
func TestSpareGrowsWithTheSegmentBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := fs.NewMemory()
		unsynced, largest := int64(0), int64(0) // of the spare
		disk.SetHook(func(op fs.Op) *fs.Fault {
			switch {
			case op.Name != spareName(2):
			case op.Kind == fs.OpWrite:
				unsynced += op.Len
				largest = max(largest, unsynced)
			case op.Kind == fs.OpSync:
				unsynced = 0
			}
			return nil
		})
		l := behind(t, disk)
		saveTo(t, l, 49)
		if got := spareSizes(t, disk); len(got) != 0 {
			t.Errorf("spares of %d bytes at half of the segment, want none", got)
		}
		for percent := int64(55); percent < 84; percent += 5 {
			saveTo(t, l, percent)
			want := 2*l.w.tail.end - l.cfg.SegmentSize
			if got := spareSizes(t, disk); len(got) != 1 || got[0] > want+l.spares.piece() || got[0] < want-l.spares.piece() {
				t.Errorf("spares of %d bytes at %d %% of the segment, want one of about %d", got, percent, want)
			}
		}
		if most := l.spares.piece(); largest != most {
			t.Errorf("%d bytes of the spare were synced at once, want %d", largest, most)
		}
		saveTo(t, l, 84)
		must(t, fill(l, 2))
		if got, want := all(t, l), entries(1, 1, l.mu.view.last()+1, 1000); len(got) != len(want) {
			t.Errorf("%d entries in two segments, want %d", len(got), len(want))
		}
		must(t, l.Close())
		again := mustOpen(t, testConfig(disk))
		defer again.Close()
		if got := again.mu.view.last(); got != l.mu.view.last() {
			t.Errorf("the last entry is %d after the next Open, want %d", got, l.mu.view.last())
		}
	})
}

// A segment that a compaction has freed is the next one. What was made of a spare is kept for
// the one after it.
func TestNoSpareIsMadeBesideAFreedSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := fs.NewMemory()
		l := behind(t, disk)
		defer l.Close()
		must(t, fill(l, 2))
		last := l.mu.view.last()
		must(t, l.SaveSnapshot(snapshot(1, last)))
		must(t, l.Compact(last))
		if got := l.Stats().Recycled; got != 1 {
			t.Fatalf("%d segments are recycled, want one", got)
		}
		saveTo(t, l, 84)
		if got := spareSizes(t, disk); len(got) != 1 || got[0] != l.cfg.SegmentSize {
			t.Errorf("spares of %d bytes, want the recycled one of %d alone", got, l.cfg.SegmentSize)
		}
	})
}

// A batch that needs the next segment before there is one makes what is left of it.
func TestSegmentIsNeededBeforeItsSpareIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := fs.NewMemory()
		l := behind(t, disk)
		saveTo(t, l, 70)
		made := l.spares.next.made
		written := int64(0)
		disk.SetHook(func(op fs.Op) *fs.Fault {
			if op.Kind == fs.OpWrite {
				written += op.Len
			}
			return nil
		})
		next := l.mu.view.last() + 1
		size := int(l.cfg.SegmentSize) * 2 / 5
		must(t, l.Save(entries(1, next, next+1, size), hard(1, 1, next-1), nil))
		if most := l.cfg.SegmentSize - made + int64(size) + 9000; made == 0 || written > most {
			t.Errorf("%d bytes were written for a segment of which %d were made, want %d at most", written, made, most)
		}
		if got := spareSizes(t, disk); len(got) != 0 {
			t.Errorf("spares of %d bytes, want none: it is the segment", got)
		}
		must(t, l.Close())
		again := mustOpen(t, testConfig(disk))
		defer again.Close()
		if err := sameEntries(all(t, again), append(entries(1, 1, next, 1000), entry(1, next, size))); err != nil {
			t.Errorf("after the next Open: %v", err)
		}
	})
}

// What is made of a spare goes with the log, however that ends.
func TestSpareThatIsHalfMadeGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := fs.NewMemory()
		l := behind(t, disk)
		saveTo(t, l, 80)
		crashed := disk.Clone()
		if got := spareSizes(t, crashed); len(got) != 1 {
			t.Fatalf("spares of %d bytes, want one that is half made", got)
		}
		must(t, l.Close())
		if got := spareSizes(t, disk); len(got) != 0 {
			t.Errorf("spares of %d bytes after Close, want none", got)
		}
		again := behind(t, crashed)
		defer again.Close()
		if got := spareSizes(t, crashed); len(got) != 0 {
			t.Errorf("spares of %d bytes after Open, want none", got)
		}
	})
}

// After an error in the background the next attempt to make a spare is in the Save that needs it, which
// says why, or makes it.
func TestSpareThatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := fs.NewMemory()
		l := behind(t, disk)
		defer l.Close()
		saveTo(t, l, 49)
		tries := 0
		disk.SetHook(func(op fs.Op) *fs.Fault {
			if op.Kind == fs.OpCreate {
				tries++
				return &fs.Fault{Err: syscall.ENOSPC}
			}
			return nil
		})
		saveTo(t, l, 84)
		if tries != 1 {
			t.Errorf("the background has tried %d times, want once", tries)
		}
		next := l.mu.view.last() + 1
		big := entries(1, next, next+1, 8000)
		if err := l.Save(big, hard(1, 1, next-1), nil); !errors.Is(err, ErrNoSpace) {
			t.Errorf("Save() without room for a segment = %v, want an error", err)
		}
		disk.SetHook(nil)
		must(t, l.Save(big, hard(1, 1, next-1), nil))
		saveTo(t, l, 70)
		if got := spareSizes(t, disk); len(got) != 1 {
			t.Errorf("spares of %d bytes in the next segment, want one that is half made", got)
		}
	})
}

// A Save that needs the next segment while its last piece is made waits for it, and makes no other.
func TestSegmentIsNeededWhileItsLastPieceIsMade(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	cfg.Inline, cfg.SegmentSize = false, 16<<20 // so large that the reserve is less than half a piece
	l := mustOpen(t, cfg)
	defer l.Close()
	last := make(chan struct{})
	var files, pieces atomic.Int64
	disk.SetHook(func(op fs.Op) *fs.Fault {
		switch {
		case op.Kind == fs.OpCreate:
			files.Add(1)
		case op.Kind == fs.OpSync && op.Name == spareName(2) && pieces.Add(1) == cfg.SegmentSize/l.spares.piece():
			close(last)
			time.Sleep(100 * time.Millisecond) // the Save that needs it waits by then: no bubble, as it does so for a lock
		}
		return nil
	})
	must(t, l.Save(entries(1, 1, 2, int(cfg.SegmentSize)-100<<10), hard(1, 1, 0), nil))
	<-last
	must(t, l.Save(entries(1, 2, 3, 200<<10), hard(1, 1, 1), nil))
	if n := files.Load(); n != 1 {
		t.Errorf("%d files were made for one segment, want one", n)
	}
	if got := spareSizes(t, disk); len(got) != 0 {
		t.Errorf("spares of %d bytes, want none: it is the segment", got)
	}
}

// Close waits for a piece, and not for all that is asked for.
func TestCloseWaitsForOnePiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := fs.NewMemory()
		l := behind(t, disk)
		saveTo(t, l, 40)
		syncs := 0
		disk.SetHook(func(op fs.Op) *fs.Fault {
			if op.Kind == fs.OpSync && op.Name == spareName(2) {
				syncs++
				time.Sleep(time.Second)
			}
			return nil
		})
		next := l.mu.view.last() + 1
		must(t, l.Save(entries(1, next, next+1, int(l.cfg.SegmentSize)*4/10), hard(1, 1, next-1), nil))
		time.Sleep(1500 * time.Millisecond)
		must(t, l.Close())
		if syncs > 2 {
			t.Errorf("%d pieces were made, want the one under way at Close to be the last", syncs)
		}
	})
}
