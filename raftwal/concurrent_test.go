package raftwal

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal/fs"
)

// Readers of old and new entries, a writer that appends and replaces, and
// compaction that recycles the segments under their hands.
func TestReadersWriterAndCompaction(t *testing.T) {
	cfg := testConfig(fs.NewMemory())
	cfg.MaxRecentBytes = 2000
	cfg.Inline = false
	l := mustOpen(t, cfg)
	var readers sync.WaitGroup
	var done atomic.Bool
	var reads, fromDisk atomic.Int64
	for i := range uint64(4) {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(i, 3))
			for !done.Load() {
				n, err := readSome(l, r)
				if err != nil {
					t.Error(err)
					return
				}
				reads.Add(1)
				fromDisk.Add(n)
			}
		})
	}
	rounds := uint64(1500)
	if testing.Short() {
		rounds = 300
	}
	last, term := uint64(0), uint64(1)
	for i := uint64(0); i < rounds || fromDisk.Load() < 1000; i++ {
		if t.Failed() {
			break
		}
		if i%50 == 49 { // a new leader replaces the last three
			last, term = last-min(last, 3), term+1
		}
		must(t, l.Save(entries(term, last+1, last+4, 100), hard(term, 1, last), nil))
		last += 3
		if i%40 == 39 {
			must(t, l.SaveSnapshot(snapshotAt(t, l, last-20)))
			must(t, l.Compact(last-20))
		}
		if i%10 == 0 {
			l.Stats()
		}
	}
	done.Store(true)
	readers.Wait()
	t.Logf("%d reads, %d entries of them from disk; %+v", reads.Load(), fromDisk.Load(), l.Stats())
	must(t, l.Close())
	if fromDisk.Load() == 0 || l.Stats().Recycled == 0 {
		t.Error("nothing was read from disk, or no segment was recycled")
	}
}

// readSome reads a random range and checks that the entries are what they
// should be: their data follows from term and index.
func readSome(l *Log, r *rand.Rand) (fromDisk int64, err error) {
	first, err := l.FirstIndex()
	if err != nil {
		return 0, err
	}
	last, err := l.LastIndex()
	if err != nil || last < first {
		return 0, err
	}
	lo := first + r.Uint64N(last-first+1)
	hi := min(last+1, lo+1+r.Uint64N(30))
	got, err := l.Entries(lo, hi, 3000)
	switch {
	case errors.Is(err, raft.ErrCompacted) || errors.Is(err, raft.ErrUnavailable):
		return 0, nil // the writer was faster
	case err != nil:
		return 0, err
	case len(got) == 0:
		return 0, errors.New("no entries, and no error")
	}
	for i, e := range got {
		if want := entry(e.GetTerm(), lo+uint64(i), 100); !protoEqual(e, want) {
			return 0, errors.New("read " + raft.DescribeEntry(e, nil))
		}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.mu.view.recent.holds(lo) {
		return int64(len(got)), nil
	}
	return 0, nil
}

// A reader that is in the middle of a segment keeps it, although compaction has
// taken it out of the log.
func TestCompactionWhileReading(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	cfg.MaxRecentBytes = -1
	l := mustOpen(t, cfg)
	defer l.Close()
	want := entries(1, 1, 60, 100)
	for i := range want {
		must(t, l.Save(want[i:i+1], nil, nil))
	}
	r, err := l.plan(1, 60, noLimit)
	must(t, err)
	must(t, l.SaveSnapshot(snapshot(1, 59)))
	must(t, l.Compact(59))
	for i := range uint64(100) { // what is recycled is written again
		must(t, l.Save(entries(2, 60+i, 61+i, 100), nil, nil))
	}
	got, err := r.run()
	if diff := sameEntries(got, want); diff != nil || err != nil {
		t.Errorf("the reader got %v, %v", diff, err)
	}
}

// Close waits only for the writer. Reads under way finish.
func TestCloseWhileReading(t *testing.T) {
	cfg := testConfig(fs.NewMemory())
	cfg.MaxRecentBytes = -1
	l := mustOpen(t, cfg)
	want := entries(1, 1, 9, 100)
	must(t, l.Save(want, nil, nil))
	r, err := l.plan(1, 9, noLimit)
	must(t, err)
	must(t, l.Close())
	got, err := r.run()
	if diff := sameEntries(got, want); diff != nil || err != nil {
		t.Errorf("the reader got %v, %v", diff, err)
	}
	if _, err := l.Entries(1, 9, noLimit); !errors.Is(err, ErrClosed) {
		t.Errorf("Entries() after Close = %v, want %v", err, ErrClosed)
	}
	if err := l.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("the second Close() = %v, want %v", err, ErrClosed)
	}
	if err := l.Save(want, nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Save() after Close = %v, want %v", err, ErrClosed)
	}
}

func snapshotAt(t *testing.T, l *Log, index uint64) *raftpb.Snapshot {
	t.Helper()
	term, err := l.Term(index)
	must(t, err)
	return snapshot(term, index)
}
