package raftwal

import (
	"errors"
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

// A batch that would leave the commit index beyond the log is refused before
// anything is written: raft would panic when it starts from that.
func TestCommitIndexBeyondTheLogIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		update []Update
		want   error
	}{
		{"the last entry is committed", []Update{{HardState: hard(1, 1, 20)}}, nil},
		{"one more is", []Update{{HardState: hard(1, 1, 21)}}, ErrCommitBeyondLog},
		{"one more is, and comes along", []Update{{Entries: entries(1, 21, 22, 10), HardState: hard(1, 1, 21)}}, nil},
		{"and comes in the next update", []Update{{HardState: hard(1, 1, 21)}, {Entries: entries(1, 21, 22, 10)}}, nil},
		{"uncommitted entries are replaced", []Update{{Entries: entries(2, 16, 17, 10), HardState: hard(2, 1, 15)}}, nil},
		{"committed entries are lost", []Update{{Entries: entries(2, 12, 13, 10), HardState: hard(2, 1, 12)}}, ErrCommitBeyondLog},
		{"a snapshot at the commit index", []Update{{Snapshot: snapshot(1, 15)}}, nil},
		{"a snapshot below the commit index", []Update{{Snapshot: snapshot(1, 14)}}, ErrCommitBeyondLog},
		{"such a snapshot, and what it lacks", []Update{{Snapshot: snapshot(1, 14), Entries: entries(1, 15, 16, 10)}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := fs.NewMemory()
			l := mustOpen(t, testConfig(disk))
			defer l.Close()
			must(t, l.Save(entries(1, 1, 21, 10), hard(1, 1, 0), nil))
			must(t, l.SaveSnapshot(snapshot(1, 13)))
			must(t, l.Save(nil, hard(1, 1, 15), nil))
			ops, before := disk.Ops(), summary(t, l)
			err := l.SaveAll(tt.update)
			if !errors.Is(err, tt.want) {
				t.Fatalf("SaveAll() = %v, want %v", err, tt.want)
			}
			if err == nil {
				must(t, l.Flush())
				expectStarts(t, disk, l.mu.view.hard.commit)
				return
			}
			if disk.Ops() != ops || summary(t, l) != before {
				t.Errorf("%d operations for what was refused, and the log holds %s, want %s", disk.Ops()-ops, summary(t, l), before)
			}
		})
	}
}

// What SaveCommit has returned for survives a power failure, never falls, and
// never goes beyond what is durable.
func TestSaveCommit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		index uint64
		want  uint64
		err   error
		ops   int
	}{
		{"below what is on disk", 4, 5, nil, 0},
		{"what is on disk", 5, 5, nil, 0},
		{"below what was put off", 6, 8, nil, 2},
		{"what was put off", 8, 8, nil, 2},
		{"what no update has brought yet", 9, 9, nil, 2},
		{"the last entry", 20, 20, nil, 2},
		{"one more", 21, 5, ErrCommitBeyondLog, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := fs.NewMemory()
			l := mustOpen(t, testConfig(disk))
			defer l.Close()
			must(t, l.Save(entries(1, 1, 21, 10), hard(1, 1, 5), nil))
			must(t, l.Save(nil, hard(1, 1, 8), nil)) // put off
			ops := disk.Ops()
			if err := l.SaveCommit(tt.index); !errors.Is(err, tt.err) {
				t.Fatalf("SaveCommit(%d) = %v, want %v", tt.index, err, tt.err)
			}
			if got := disk.Ops() - ops; got != tt.ops {
				t.Errorf("%d operations, want %d", got, tt.ops)
			}
			expectStarts(t, disk, tt.want)
			// An update that it has overtaken takes nothing back.
			must(t, l.Save(entries(1, 21, 22, 10), hard(2, 0, 3), nil))
			expectStarts(t, disk, max(tt.want, 8))
		})
	}
}

// The thread that applies is told of a commit index before the update with it is
// durable: that waits in the appender, behind one with a done that waits for the
// thread that applies, as a snapshot does.
func TestSaveCommitWaitsForNoUpdate(t *testing.T) {
	disk := fs.NewMemory()
	l := mustOpen(t, testConfig(disk))
	defer l.Close()
	must(t, l.Save(entries(1, 1, 21, 10), hard(1, 1, 5), nil))
	a := NewAppender(l, nil)
	defer a.Close()
	restored, reached := make(chan struct{}), make(chan struct{})
	must(t, a.Append(Update{Entries: entries(1, 21, 22, 10)}, func(error) { close(reached); <-restored }))
	<-reached
	must(t, a.Append(Update{HardState: hard(1, 1, 9)}, func(error) {}))
	must(t, l.Flush())
	expectStarts(t, disk, 5)
	must(t, l.SaveCommit(9))
	expectStarts(t, disk, 9)
	close(restored)
}

// A snapshot that is installed meanwhile says more than SaveCommit asks for.
func TestSaveCommitBehindASnapshot(t *testing.T) {
	disk := fs.NewMemory()
	l := mustOpen(t, testConfig(disk))
	defer l.Close()
	must(t, l.Save(entries(1, 1, 21, 10), hard(1, 1, 5), nil))
	must(t, l.Save(nil, nil, snapshot(1, 30)))
	ops := disk.Ops()
	must(t, l.SaveCommit(9))
	if got := disk.Ops() - ops; got != 0 {
		t.Errorf("SaveCommit(9) behind a snapshot of 30 made %d operations, want none", got)
	}
	expectStarts(t, disk, 30)
}
