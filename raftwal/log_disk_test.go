package raftwal

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// The whole life of a log on a real disk.
func TestLogOnARealDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	cfg := Config{Dir: dir, SegmentSize: 64 << 10, MaxRecentBytes: 4 << 10}
	l := mustOpen(t, cfg)
	want := entries(1, 1, 1001, 200)
	for i := 0; i < len(want); i += 10 {
		must(t, l.Save(want[i:i+10], hard(1, 1, uint64(i)), nil))
	}
	must(t, l.SaveMaxPromise(3*time.Second))
	must(t, l.SaveSnapshot(snapshot(1, 600)))
	must(t, l.Compact(500))
	if _, err := Open(cfg); !errors.Is(err, ErrLocked) {
		t.Errorf("Open() of a log that is open = %v, want %v", err, ErrLocked)
	}
	if err := CheckLock(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("CheckLock() of a log that is open = %v, want %v", err, ErrLocked)
	}
	if diff := sameEntries(all(t, l), want[500:]); diff != nil {
		t.Error(diff)
	}
	must(t, l.Close())

	readOnDisk(t, cfg, want)
	l = mustOpen(t, cfg)
	if diff := sameEntries(all(t, l), want[500:]); diff != nil {
		t.Error(diff)
	}
	if d, err := l.LoadMaxPromise(); d != 3*time.Second || err != nil {
		t.Errorf("LoadMaxPromise() = %v, %v, want 3s", d, err)
	}
	must(t, l.Close())
}

// readOnDisk reads the log of TestLogOnARealDisk in the ways that change nothing.
func readOnDisk(t *testing.T, cfg Config, want []*raftpb.Entry) {
	t.Helper()
	dir := cfg.Dir
	before := contents(t, dir)
	must(t, CheckLock(dir))
	must(t, CheckLock(filepath.Join(dir, "missing")))
	report, err := Verify(cfg)
	must(t, err)
	if report.FirstIndex != 501 || report.LastIndex != 1000 || report.MaxPromise != 3*time.Second ||
		report.Snapshot.GetIndex() != 600 || hardOf(report.HardState) != (hardState{1, 1, 990}) || report.Torn != nil {
		t.Errorf("Verify() = %+v", report)
	}
	ro, err := OpenReadOnly(cfg)
	must(t, err)
	if diff := sameEntries(all(t, ro), want[500:]); diff != nil {
		t.Error(diff)
	}
	if err := ro.Save(want[:1], nil, nil); !errors.Is(err, ErrReadOnly) {
		t.Errorf("Save() on a log opened for reading = %v, want %v", err, ErrReadOnly)
	}
	must(t, ro.Close())
	if after := contents(t, dir); !slices.Equal(before, after) {
		t.Error("reading has changed the directory")
	}
}
