package raftwal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal/fs"
)

// TestFailureIsFinal fails each sync of a file or of the directory, and each
// write, of a script. The step reports it, nothing is written afterwards, what
// was there can be read, and what the crash leaves is before or after the step.
func TestFailureIsFinal(t *testing.T) {
	s := drawScript(2, 300)
	total := s.operations(t)
	step := 1
	if testing.Short() {
		step = 17
	}
	for n := 1; n <= total; n += step {
		disk := fs.NewMemory()
		disk.SetHook(fs.FailAt(n, syscall.EIO))
		done, l, err := s.play(disk)
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("EIO in operation %d of %d: %v", n, total, err)
		}
		if l != nil && !errors.Is(l.Save(entries(99, 1, 2, 1), nil, nil), ErrClosed) {
			if err := s.expectFailed(l, done); err != nil {
				t.Fatalf("EIO in operation %d (step %d, %s): %v", n, done, s.steps[done].name, err)
			}
		}
		for variant := range uint64(3) {
			after := disk.Crash(fs.Something, rand.New(rand.NewPCG(uint64(n), variant)))
			if _, err := s.afterCrash(after, done); err != nil {
				t.Fatalf("crash after EIO in operation %d (step %d, %s): %v", n, done, s.steps[done].name, err)
			}
		}
		if _, err := s.afterCrash(disk.EndProcess(), done); err != nil {
			t.Fatalf("restart after EIO in operation %d (step %d, %s): %v", n, done, s.steps[done].name, err)
		}
	}
}

func (s *script) operations(t *testing.T) int {
	t.Helper()
	disk := fs.NewMemory()
	_, l, err := s.play(disk)
	must(t, err)
	must(t, l.Close())
	return disk.Ops()
}

// expectFailed checks that l, which has failed in a step, refuses all writes
// and still serves reads.
func (s *script) expectFailed(l *Log, done int) error {
	state := s.states[done]
	e := entries(99, state.last()+1, state.last()+2, 1)
	for name, err := range map[string]error{
		"Save":               l.Save(e, hard(99, 1, 1), nil),
		"SaveSnapshot":       l.SaveSnapshot(snapshot(99, 1)),
		"Compact":            l.Compact(1),
		"Flush":              l.Flush(),
		"SaveLongestPromise": l.SaveLongestPromise(1),
	} {
		if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
			return fmt.Errorf("%s() after a failure = %w, want %w", name, err, ErrFailed)
		}
	}
	before := state.check(l, true)
	if before == nil {
		return nil
	}
	if after := s.states[done+1].check(l, true); after != nil {
		return fmt.Errorf("readers see neither the state before: %w; nor after: %w", before, after)
	}
	return nil
}

// TestFullDisk lets each operation of a script find the disk full. A write that
// says so can be repeated, and the script goes on as if nothing had been.
func TestFullDisk(t *testing.T) {
	s := drawScript(3, 300)
	total := s.operations(t)
	step := 1
	if testing.Short() {
		step = 17
	}
	repeated, final := 0, 0
	for n := 1; n <= total; n += step {
		disk := fs.NewMemory()
		disk.SetHook(fs.FailAt(n, syscall.ENOSPC))
		ok, err := s.playOnFullDisk(disk)
		if err != nil {
			t.Fatalf("ENOSPC in operation %d of %d: %v", n, total, err)
		}
		if ok {
			repeated++
		} else {
			final++
		}
	}
	t.Logf("%d failures could be repeated, %d were final", repeated, final)
	if repeated < final/2 {
		t.Error("most writes to a full disk should be repeatable")
	}
}

// playOnFullDisk plays the script, repeats the step that finds no room and
// reports whether it got to the end.
func (s *script) playOnFullDisk(disk *fs.Memory) (bool, error) {
	open := func() (*Log, error) { return Open(testConfig(disk)) }
	l, err := open()
	if err != nil {
		if l, err = open(); err != nil {
			return false, fmt.Errorf("the second Open: %w", err)
		}
	}
	for i := range s.steps {
		st := &s.steps[i]
		next, err := st.run(l, open)
		switch {
		case err == nil:
			l = next
		case st.reopen:
			// Whatever Close and Open say, the second attempt succeeds. What Close
			// could not write is as after a crash.
			if l, err = open(); err != nil {
				return false, fmt.Errorf("step %d: the second Open: %w", i, err)
			}
			if err := s.states[i].check(l, true); err != nil {
				return false, fmt.Errorf("step %d: after the second Open: %w", i, err)
			}
		case errors.Is(err, ErrNoSpace):
			if err := s.repeat(i, l, open); err != nil {
				return false, fmt.Errorf("step %d, %s: %w", i, st.name, err)
			}
		case errors.Is(err, ErrFailed):
			return false, nil
		default:
			return false, fmt.Errorf("step %d, %s: %w", i, st.name, err)
		}
	}
	end := s.states[len(s.steps)]
	if err := errors.Join(end.check(l, true), l.Close()); err != nil {
		return false, err
	}
	if l, err = open(); err != nil {
		return false, err
	}
	return true, errors.Join(end.check(l, true), l.Close())
}

// repeat repeats step i, for which there was no room.
func (s *script) repeat(i int, l *Log, open func() (*Log, error)) error {
	if err := s.states[i].check(l, false); err != nil {
		return fmt.Errorf("after the failure: %w", err)
	}
	if _, err := s.steps[i].run(l, open); err != nil {
		return fmt.Errorf("the second attempt: %w", err)
	}
	return s.states[i+1].check(l, true)
}

// A disk that fills up and gets room again: what was refused is not there, also
// after a restart, and the log goes on.
func TestLogGoesOnWhenThereIsRoomAgain(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	disk.SetCapacity(disk.Used() + minSegmentSize)
	var last uint64
	for {
		err := l.Save(entries(1, last+1, last+2, 300), nil, nil)
		if errors.Is(err, ErrNoSpace) && errors.Is(err, syscall.ENOSPC) {
			break
		}
		must(t, err)
		last++
	}
	if got := uint64(len(all(t, l))); got != last {
		t.Fatalf("%d entries can be read, want %d", got, last)
	}
	if err := l.SaveSnapshot(snapshot(1, last)); err != nil && !errors.Is(err, ErrNoSpace) {
		t.Fatalf("SaveSnapshot() on a full disk = %v", err)
	}
	must(t, expectReopen(cfg, disk, last))
	disk.SetCapacity(-1)
	must(t, l.Save(entries(1, last+1, last+2, 300), nil, nil))
	must(t, expectReopen(cfg, disk, last+1))
	must(t, l.Close())
}

// One batch that does not fit gets a segment of its own size.
func TestBatchLargerThanASegment(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	e := entries(1, 1, 40, 1000)
	must(t, l.Save(e[:3], nil, nil))
	must(t, l.Save(e[3:38], nil, nil))
	must(t, l.Save(e[38:], hard(1, 1, 30), nil))
	must(t, l.Close())
	l = mustOpen(t, cfg)
	defer l.Close()
	if diff := sameEntries(all(t, l), e); diff != nil {
		t.Error(diff)
	}
	must(t, l.SaveSnapshot(snapshot(1, 30)))
	must(t, l.Compact(30))
	if diff := sameEntries(all(t, l), e[30:]); diff != nil {
		t.Error(diff)
	}
}

func TestTooLargeIsRefused(t *testing.T) {
	cfg := testConfig(fs.NewMemory())
	cfg.MaxBatchBytes, cfg.MaxSnapshotBytes = 8<<10, 100
	l := mustOpen(t, cfg)
	defer l.Close()
	if err := l.Save(entries(1, 1, 20, 1000), nil, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Save() of 20 kB = %v, want %v", err, ErrTooLarge)
	}
	snap := snapshot(1, 1)
	snap.Data = make([]byte, 101)
	if err := l.Save(nil, nil, snap); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Save() of a snapshot with 101 bytes = %v, want %v", err, ErrTooLarge)
	}
	if err := l.Save([]*raftpb.Entry{{Index: new(uint64(1)), Type: raftpb.EntryType(16).Enum()}}, nil, nil); err == nil {
		t.Error("Save() of an entry of type 16 = nil")
	}
	must(t, l.Save(entries(1, 1, 2, 1000), nil, nil))
}

// A segment that cannot be retired is the log's no more, and its file is closed
// all the same.
func TestFailedCompactionClosesItsFile(t *testing.T) {
	for _, kind := range []fs.Kind{fs.OpRename, fs.OpRemove, fs.OpSyncDir} {
		disk := fs.NewMemory()
		cfg := testConfig(&watched{FS: disk})
		if kind == fs.OpRemove {
			cfg.MaxSpares = -1
		}
		dir, _ := cfg.FS.(*watched)
		l := mustOpen(t, cfg)
		must(t, fill(l, 3))
		last := l.mu.view.last()
		must(t, l.SaveSnapshot(snapshot(1, last)))
		disk.SetHook(failIn(kind, 1, syscall.EIO))
		if err := l.Compact(last); !errors.Is(err, ErrFailed) {
			t.Errorf("Compact() with a failing %v = %v, want %v", kind, err, ErrFailed)
		}
		must(t, l.Close())
		if n := dir.files.Load(); n != 0 {
			t.Errorf("%d files are open after a failed %v and Close, want none", n, kind)
		}
	}
}
