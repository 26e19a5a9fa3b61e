package raftwal

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/leaderlease/go/raftwal/fs"
)

// removeAll removes the segments from disk.
func removeAll(t *testing.T, disk *fs.Memory) {
	t.Helper()
	for _, name := range segmentNames(t, disk) {
		must(t, disk.Remove(name))
	}
}

// A member that comes up empty under its old ID would vote twice. Where a log
// has been, no new one begins, and a reader does not take it for an empty one.
func TestLogWithoutItsSegmentsIsRefused(t *testing.T) {
	for _, opened := range []int{1, 2} {
		disk := fs.NewMemory()
		cfg := testConfig(disk)
		for range opened {
			l := mustOpen(t, cfg)
			must(t, l.Save(entries(1, l.mu.view.last()+1, l.mu.view.last()+9, 1000), nil, nil))
			must(t, l.Close())
		}
		removeAll(t, disk)
		for name, open := range map[string]func(Config) (*Log, error){
			"Open":         Open,
			"OpenReadOnly": OpenReadOnly,
			"Verify": func(cfg Config) (*Log, error) {
				_, err := Verify(cfg)
				return nil, err
			},
		} {
			if _, err := open(testConfig(disk.Clone())); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s() without segments, opened %d times = %v, want %v", name, opened, err, ErrCorrupt)
			}
		}
	}
}

// Logs of earlier versions have no marker. They open, and then have one.
func TestLogWithoutMarkerOpens(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	must(t, l.Save(entries(1, 1, 3, 10), nil, nil))
	must(t, l.Close())
	must(t, disk.Remove(markerName))
	must(t, disk.Sync())
	must(t, expectReopen(cfg, disk, 2))
	l = mustOpen(t, cfg)
	after := disk.Durable()
	must(t, l.Close())
	removeAll(t, after)
	if _, err := Open(testConfig(after)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Open() of what was opened and has lost its segments = %v, want %v", err, ErrCorrupt)
	}
}

// The marker must not be there before the first segment: whatever a crash
// leaves of the first Opens, the next one succeeds.
func TestMarkerNeverPrecedesTheFirstSegment(t *testing.T) {
	for n := 1; ; n++ {
		whole := false
		for seed := range uint64(40) {
			r := rand.New(rand.NewPCG(seed, 6))
			disk := fs.NewMemory()
			disk.SetHook(fs.CrashAt(n))
			l, err := Open(testConfig(disk))
			if whole = err == nil; whole {
				must(t, l.Close())
				break
			}
			if r.IntN(2) == 0 {
				disk = disk.EndProcess()
				disk.SetHook(fs.CrashAt(1 + r.IntN(6)))
				if l, err := Open(testConfig(disk)); err == nil {
					must(t, l.Close())
				} else if !errors.Is(err, fs.ErrCrashed) {
					t.Fatalf("crash in operation %d, seed %d: the second Open() = %v", n, seed, err)
				}
			}
			l, err = Open(testConfig(disk.Crash(fs.Something, r)))
			if err != nil {
				t.Fatalf("crash in operation %d, seed %d: Open() = %v", n, seed, err)
			}
			must(t, l.Close())
		}
		if whole {
			return
		}
	}
}

// On a disk that has no room for one more name, the log opens without a marker.
func TestNoRoomForTheMarker(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	must(t, mustOpen(t, cfg).Close())
	must(t, disk.Remove(markerName))
	disk.SetHook(failIn(fs.OpCreate, 1, syscall.ENOSPC))
	l := mustOpen(t, cfg)
	must(t, l.Save(entries(1, 1, 2, 10), nil, nil))
	must(t, l.Close())
	must(t, mustOpen(t, cfg).Close())
	if files, err := list(disk); err != nil || !files.marked {
		t.Errorf("list() = %+v, %v, want a marker once there is room", files, err)
	}
}
