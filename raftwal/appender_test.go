package raftwal

import (
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal/fs"
)

// While one batch is being written the next ones gather, and share one sync.
// Each is told only when it is durable, in order.
func TestAppenderSharesSyncs(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	cfg.SegmentSize = 32 << 10
	l := mustOpen(t, cfg)
	inFirst, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	disk.SetHook(func(op fs.Op) *fs.Fault {
		if op.Kind == fs.OpSync {
			once.Do(func() {
				close(inFirst)
				<-goOn
			})
		}
		return nil
	})
	before := l.Stats().Syncs
	a := NewAppender(l, nil)
	var told []uint64
	add := func(i uint64) {
		must(t, a.Append(Update{Entries: entries(1, i, i+1, 100), HardState: hard(1, 1, i-1)}, func(err error) {
			if err != nil {
				t.Errorf("update %d: %v", i, err)
			}
			if got := durableLast(t, cfg, disk); got < i {
				t.Errorf("update %d is acknowledged, and %d entries are durable", i, got)
			}
			told = append(told, i)
		}))
	}
	add(1)
	<-inFirst
	for i := uint64(2); i <= 50; i++ {
		add(i)
	}
	close(goOn)
	a.Close()
	if n := l.Stats().Syncs - before; n != 2 {
		t.Errorf("%d syncs for 50 updates, want 2", n)
	}
	if len(told) != 50 || !slices.IsSorted(told) {
		t.Errorf("told %v, want 1 to 50", told)
	}
	if err := a.Append(Update{}, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Append() after Close = %v, want %v", err, ErrClosed)
	}
	must(t, l.Close())
}

// An update above half of MaxBatchBytes waits for those before it, and then is a batch of its own.
func TestAppenderTakesALargeUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(fs.NewMemory())
		cfg.MaxBatchBytes, cfg.MaxSnapshotBytes = 16<<10, 1<<10
		l := mustOpen(t, cfg)
		a := NewAppender(l, nil)
		for i := uint64(1); i <= 2; i++ {
			must(t, a.Append(Update{Entries: entries(1, i, i+1, 12<<10), HardState: hard(1, 1, 0)}, func(err error) { must(t, err) }))
		}
		a.Close()
		if last, err := l.LastIndex(); last != 2 || err != nil {
			t.Errorf("LastIndex() = %d, %v, want 2", last, err)
		}
		must(t, l.Close())
	})
}

// After one failure nothing that came later may succeed.
func TestAppenderStopsAtTheFirstFailure(t *testing.T) {
	disk := fs.NewMemory()
	l := mustOpen(t, testConfig(disk))
	a := NewAppender(l, nil)
	disk.SetHook(fs.FailAt(disk.Ops()+1, syscall.ENOSPC))
	var errs []error
	for i := uint64(1); i <= 3; i++ {
		must(t, a.Append(Update{HardState: hard(i, 1, 0)}, func(err error) { errs = append(errs, err) }))
	}
	a.Close()
	for i, err := range errs {
		if !errors.Is(err, ErrNoSpace) {
			t.Errorf("update %d: %v, want %v", i, err, ErrNoSpace)
		}
	}
	if got := l.mu.view.hard.term; got != 0 {
		t.Errorf("term %d, want 0", got)
	}
	must(t, l.Close())
}

// With a retry function a full disk delays, and loses nothing.
func TestAppenderRetriesOnAFullDisk(t *testing.T) {
	disk := fs.NewMemory()
	l := mustOpen(t, testConfig(disk))
	retries := 0
	a := NewAppender(l, func(error) bool { retries++; return true })
	disk.SetHook(fs.FailAt(disk.Ops()+1, syscall.ENOSPC))
	m := &raftpb.Message{Entries: entries(3, 1, 4, 10), Term: new(uint64(3)), Vote: new(uint64(2)), Commit: new(uint64(1))}
	must(t, a.Append(UpdateOf(m), func(err error) {
		if err != nil {
			t.Error(err)
		}
	}))
	a.Close()
	if got := l.mu.view.hard; retries != 1 || got != (hardState{3, 2, 1}) || l.mu.view.last() != 3 {
		t.Errorf("%d retries, hard state %+v, last index %d, want 1, term 3, vote 2, commit 1, 3", retries, got, l.mu.view.last())
	}
	must(t, l.Close())
}

// durableLast returns the last index that a crash now would leave.
func durableLast(t *testing.T, cfg Config, disk *fs.Memory) uint64 {
	t.Helper()
	cfg.FS = disk.Durable()
	l, err := OpenReadOnly(cfg)
	must(t, err)
	defer l.Close()
	return l.mu.view.last()
}
