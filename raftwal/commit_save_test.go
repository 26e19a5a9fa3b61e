package raftwal

import (
	"errors"
	"testing"

	"github.com/leaderlease/go/raftwal/fs"
)

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
// durable: that waits in the appender, behind one whose done waits in turn for the
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
