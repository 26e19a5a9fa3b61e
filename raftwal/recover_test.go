package raftwal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/leaderlease/go/raftwal/fs"
)

// failIn returns a hook that fails the nth operation of a kind. A write gets
// through to the page cache.
func failIn(kind fs.Kind, nth int, err error) func(fs.Op) *fs.Fault {
	return func(op fs.Op) *fs.Fault {
		if op.Kind != kind {
			return nil
		}
		if nth--; nth != 0 {
			return nil
		}
		return &fs.Fault{Err: err, Keep: op.Len}
	}
}

// restarted is a log that was opened again after only its process had ended.
type restarted struct {
	*Log
	disk *fs.Memory
}

// restart fails the nth operation of a kind within do, which follows two
// entries of term 1, ends the process and opens the log again.
func restart(t *testing.T, kind fs.Kind, nth int, err error, do func(l *Log) error) restarted {
	t.Helper()
	disk := fs.NewMemory()
	l := mustOpen(t, testConfig(disk))
	must(t, l.Save(entries(1, 1, 3, 50), hard(1, 1, 0), nil))
	disk.SetHook(failIn(kind, nth, err))
	if got := do(l); !errors.Is(got, err) {
		t.Fatalf("the call with a failing %v = %v, want %v", kind, got, err)
	}
	disk = disk.EndProcess()
	return restarted{Log: mustOpen(t, testConfig(disk)), disk: disk}
}

// fill appends entries until the log has n segments or a write fails.
func fill(l *Log, n int) error {
	for i := l.mu.view.last() + 1; len(l.mu.segments) < n; i++ {
		if err := l.Save(entries(1, i, i+1, 500), hard(1, 1, 0), nil); err != nil {
			return err
		}
	}
	return nil
}

// compactAll compacts a log of n segments up to its end.
func compactAll(l *Log, n int) error {
	if err := fill(l, n); err != nil {
		return err
	}
	last := l.mu.view.last()
	if err := l.SaveSnapshot(snapshot(1, last)); err != nil {
		return err
	}
	return l.Compact(last)
}

// summary is what a log holds, for comparison.
func summary(t *testing.T, l *Log) string {
	t.Helper()
	v := &l.mu.view
	return fmt.Sprintf("%+v, promise %v, base %+v, entries %v", v.hard, v.promise, v.base, all(t, l))
}

// expectSurvives checks that what the log holds survives the loss of everything
// that is not durable.
func (r restarted) expectSurvives(t *testing.T) {
	t.Helper()
	l, err := Open(testConfig(r.disk.Durable()))
	if err != nil {
		t.Fatalf("Open() after the power failure = %v", err)
	}
	if got, want := summary(t, l), summary(t, r.Log); got != want {
		t.Errorf("after the power failure the log holds %s, want %s", got, want)
	}
	must(t, l.Close())
}

// expectOpens crashes the machine in the next operation of a kind of do, in many
// ways, each of which Open must accept.
func expectOpens(t *testing.T, begin func() restarted, kind fs.Kind, do func(l *Log) error) {
	t.Helper()
	for seed := range uint64(40) {
		r := begin()
		r.disk.SetHook(failIn(kind, 1, fs.ErrCrashed))
		if err := do(r.Log); !errors.Is(err, fs.ErrCrashed) {
			t.Fatalf("the call with a crash in %v = %v", kind, err)
		}
		l, err := Open(testConfig(r.disk.Crash(fs.Something, rand.New(rand.NewPCG(seed, 1)))))
		if err != nil {
			t.Fatalf("seed %d: Open() = %v", seed, err)
		}
		must(t, l.Close())
	}
}

// What a process has written and not synced, the next one sees. It may answer
// for that at once, so Open makes it durable.
func TestOpenMakesDurableWhatItReads(t *testing.T) {
	promise := func(l *Log) error { return l.SaveLongestPromise(9) }
	vote := func(l *Log) error { return l.Save(entries(2, 3, 5, 50), hard(2, 3, 0), nil) }
	large := func(l *Log) error { return l.Save(entries(1, 3, 4, 600), hard(1, 1, 0), nil) }
	for _, tt := range []struct {
		name string
		kind fs.Kind
		nth  int
		err  error
		do   func(l *Log) error
	}{
		{"promise written, not synced", fs.OpWrite, 1, fs.ErrCrashed, promise},
		{"vote and entries written, not synced", fs.OpSync, 1, fs.ErrCrashed, vote},
		{"sync failed", fs.OpSync, 1, syscall.EIO, large},
		{"segment named, directory not synced", fs.OpSyncDir, 1, fs.ErrCrashed, func(l *Log) error { return fill(l, 2) }},
		{"base written, not synced", fs.OpWrite, 1, fs.ErrCrashed, compactOnly},
		{"segment retired, directory not synced", fs.OpSyncDir, 3, fs.ErrCrashed, func(l *Log) error { return compactAll(l, 3) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := restart(t, tt.kind, tt.nth, tt.err, tt.do)
			r.expectSurvives(t)
			// Neither says anything new, so neither need write.
			h, _, err := r.InitialState()
			must(t, err)
			must(t, r.Save(nil, h, nil))
			must(t, r.SaveLongestPromise(r.mu.view.promise))
			r.expectSurvives(t)
			last := r.mu.view.last()
			must(t, r.Save(entries(3, last+1, last+2, 600), hard(3, 0, 0), nil))
			r.expectSurvives(t)
			last++
			must(t, r.Save(entries(3, last+1, last+2, 3500), hard(3, 0, 0), nil)) // in a new segment
			r.expectSurvives(t)
		})
	}
}

// compactOnly is a Compact of all entries. The write of its base record is the first
// operation that fails.
func compactOnly(l *Log) error {
	disk, ok := l.dir.(*fs.Memory)
	if !ok {
		return errors.ErrUnsupported
	}
	disk.SetHook(nil)
	if err := fill(l, 3); err != nil {
		return err
	}
	last := l.mu.view.last()
	if err := l.SaveSnapshot(snapshot(1, last)); err != nil {
		return err
	}
	disk.SetHook(failIn(fs.OpWrite, 1, fs.ErrCrashed))
	return l.Compact(last)
}

// Two batches on their way to the disk at once could arrive in the wrong order,
// which is damage.
func TestFirstBatchAfterARestartIsAloneOnItsWay(t *testing.T) {
	save := func(l *Log) error {
		last := l.mu.view.last()
		return l.Save(entries(1, last+1, last+2, 600), hard(1, 1, 0), nil)
	}
	begin := func() restarted { return restart(t, fs.OpWrite, 1, fs.ErrCrashed, save) }
	expectOpens(t, begin, fs.OpSync, save)
}

// A spare that was a segment must have lost that name durably before a write
// changes it.
func TestSpareOfAnEarlierProcessIsNoSegment(t *testing.T) {
	for segments := 2; segments <= 3; segments++ {
		begin := func() restarted {
			return restart(t, fs.OpSyncDir, 2*segments-2, fs.ErrCrashed, func(l *Log) error { return compactAll(l, segments) })
		}
		expectOpens(t, begin, fs.OpSyncDir, func(l *Log) error { return fill(l, 9) })
	}
}

// A batch with correct CRCs and an entry that leaves a gap is damage. No crash writes it.
func TestAGapWithCorrectSumsIsDamage(t *testing.T) {
	disk := fs.NewMemory()
	l := mustOpen(t, testConfig(disk))
	must(t, l.Save(entries(1, 1, 3, 10), nil, nil))
	l.w.batch.reset(0)
	l.w.batch.entry(entry(1, 4, 10))
	must(t, l.write(&l.w.batch))
	must(t, l.Close())
	if _, err := Open(testConfig(disk)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Open() = %v, want an error that matches ErrCorrupt", err)
	}
}

// Open reads the last batch once to check it and once to write it again. What
// differs the second time must not replace what was acknowledged.
func TestSettleChecksWhatItWritesAgain(t *testing.T) {
	disk := fs.NewMemory()
	l := mustOpen(t, testConfig(disk))
	must(t, l.Save(entries(1, 1, 2, 10), nil, nil))
	start := l.w.tail.end
	must(t, l.Save(entries(1, 2, 4, 20), hard(1, 1, 2), nil))
	name, length := l.w.seg.name, l.w.tail.end-start
	must(t, l.Close())
	before := disk.Bytes(name)
	for at := range length {
		clone := disk.Clone()
		dir := &watched{FS: clone, read: func(file string, off int64, p []byte) {
			if file == name && off == start && int64(len(p)) == length {
				p[at] ^= 4
			}
		}}
		_, err := Open(testConfig(dir))
		if corrupt, ok := errors.AsType[*CorruptError](err); !ok || corrupt.File != name || corrupt.Offset != start {
			t.Fatalf("byte %d of the last batch: Open() = %v, want damage in %s at %d", at, err, name, start)
		}
		if !bytes.Equal(clone.Bytes(name), before) {
			t.Fatalf("byte %d of the last batch: Open() has changed the file", at)
		}
	}
	must(t, mustOpen(t, testConfig(&watched{FS: disk})).Close())
}

// Where a file system does not overwrite in place, a full disk may be in the way
// of Open, too. It says so, and succeeds when there is room.
func TestOpenOnAFullDiskSaysSo(t *testing.T) {
	for _, kind := range []fs.Kind{fs.OpWrite, fs.OpSync, fs.OpSyncDir} {
		for _, torn := range []bool{false, true} {
			disk := fs.NewMemory()
			l := mustOpen(t, testConfig(disk))
			must(t, l.Save(entries(1, 1, 3, 100), nil, nil))
			if torn {
				disk.SetHook(func(op fs.Op) *fs.Fault {
					if op.Kind == fs.OpWrite {
						return &fs.Fault{Err: syscall.ENOSPC, Keep: batchHeader}
					}
					return nil
				})
				if err := l.Save(entries(1, 3, 4, 100), nil, nil); !errors.Is(err, ErrNoSpace) {
					t.Fatalf("Save() on a full disk = %v, want %v", err, ErrNoSpace)
				}
			}
			disk = disk.EndProcess()
			full := 0
			for nth := 1; ; nth++ {
				disk.SetHook(failIn(kind, nth, syscall.ENOSPC))
				l, err := Open(testConfig(disk))
				if err == nil {
					must(t, l.Close())
					break
				}
				if full++; !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("Open() with a full disk at %v %d = %v, want %v", kind, nth, err, ErrNoSpace)
				}
			}
			if full == 0 {
				t.Errorf("Open() of a log with a torn tail %t needs no %v: the test does not test that", torn, kind)
			}
			must(t, expectReopen(testConfig(disk), disk, 2))
		}
	}
}
