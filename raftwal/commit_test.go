package raftwal

import (
	"io"
	"log"
	"testing"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/raftwal/fs"
)

// expectStarts opens what a power failure leaves of disk, and expects that raft
// starts from it with this commit index.
func expectStarts(t *testing.T, disk *fs.Memory, commit uint64) {
	t.Helper()
	l := mustOpen(t, testConfig(disk.Durable()))
	defer l.Close()
	h, _, err := l.InitialState()
	must(t, err)
	if h.GetCommit() != commit {
		t.Errorf("commit index %d after the power failure, want %d", h.GetCommit(), commit)
	}
	if reason := startNode(l, 0); reason != nil {
		t.Errorf("raft does not start: %v", reason)
	}
}

// startNode starts a raft node on l, and returns what it says if it does not
// start.
func startNode(l *Log, applied uint64) (reason any) {
	defer func() {
		if r := recover(); r != nil {
			reason = r
		}
	}()
	_, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: l, Applied: applied,
		MaxInflightMsgs: 10, MaxSizePerMsg: 1000,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	if err != nil {
		return err
	}
	return nil
}

// The sequence that the package's comment prescribes to an application with a
// state of its own, and what happens to one that does neither.
func TestApplicationIsNeverAheadOfTheLog(t *testing.T) {
	const applied = 20
	for _, tt := range []struct {
		name         string
		flush, clamp bool
		starts       bool
	}{
		{"flush, checkpoint, and the smaller index", true, true, true},
		{"flush, checkpoint", true, false, true},
		{"the smaller index", false, true, true},
		{"neither", false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := fs.NewMemory()
			l := mustOpen(t, testConfig(disk))
			must(t, l.Save(nil, nil, snapshot(1, 1)))
			must(t, l.Save(entries(1, 2, applied+1, 10), hard(1, 1, 1), nil))
			must(t, l.Save(nil, hard(1, 1, applied), nil)) // put off
			if tt.flush {
				must(t, l.Flush())
			}
			// Here the application's state becomes durable, and the power fails
			// before SaveSnapshot.
			l = mustOpen(t, testConfig(disk.Crash(fs.Nothing, nil)))
			defer l.Close()
			h, _, err := l.InitialState()
			must(t, err)
			start := uint64(applied)
			if tt.clamp {
				start = min(start, h.GetCommit())
			}
			if reason := startNode(l, start); (reason == nil) != tt.starts {
				t.Errorf("raft starts with Applied %d and commit index %d: %v, want it to start: %v", start, h.GetCommit(), reason, tt.starts)
			}
		})
	}
}

// raft panics if the log begins above the commit index. Whatever order updates
// and snapshots come in, that never is so on the disk.
func TestCommitIndexNeverFallsBelowTheSnapshot(t *testing.T) {
	// With AsyncStorageWrites the thread that applies may save a snapshot while
	// updates with an older commit index still wait to be appended.
	t.Run("update behind a snapshot that overtook it", func(t *testing.T) {
		disk := fs.NewMemory()
		l := mustOpen(t, testConfig(disk))
		must(t, l.Save(nil, nil, snapshot(1, 1)))
		must(t, l.Save(entries(1, 2, 21, 10), hard(1, 1, 1), nil))
		must(t, l.SaveSnapshot(snapshot(1, 20)))
		must(t, l.Compact(20))
		must(t, l.Save(entries(1, 21, 22, 10), hard(1, 1, 10), nil))
		expectStarts(t, disk, 20)
	})
	t.Run("installed snapshot without a hard state", func(t *testing.T) {
		disk := fs.NewMemory()
		l := mustOpen(t, testConfig(disk))
		must(t, l.Save(entries(1, 1, 3, 10), hard(1, 1, 2), nil))
		must(t, l.Save(nil, nil, snapshot(1, 20)))
		expectStarts(t, disk, 20)
	})
	t.Run("two updates of one sync, the older one last", func(t *testing.T) {
		disk := fs.NewMemory()
		l := mustOpen(t, testConfig(disk))
		must(t, l.Save(entries(1, 1, 9, 10), nil, nil))
		must(t, l.SaveAll([]Update{{HardState: hard(1, 1, 8)}, {HardState: hard(2, 1, 3)}}))
		expectStarts(t, disk, 8)
	})
	// Logs of earlier versions may hold one.
	t.Run("on a disk that holds a lower one", func(t *testing.T) {
		disk := fs.NewMemory()
		l := mustOpen(t, testConfig(disk))
		must(t, l.Save(entries(1, 1, 9, 10), hard(1, 1, 0), nil))
		must(t, l.SaveSnapshot(snapshot(1, 8)))
		must(t, l.Compact(8))
		b := &l.w.batch
		b.reset(0)
		b.hard(hardState{term: 1, vote: 1, commit: 2})
		must(t, l.write(b))
		expectStarts(t, disk, 8)
	})
}
