package raftwal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal/fs"
)

// contents returns a line for each file of a directory.
func contents(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		must(t, err)
		lines = append(lines, f.Name()+" "+string(b))
	}
	return lines
}

func TestReadingNothing(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
		if _, err := Verify(Config{Dir: dir}); err == nil {
			t.Errorf("Verify(%s) = nil, want an error", dir)
		}
		files, err := os.ReadDir(dir)
		if len(files) > 0 || (err != nil && !os.IsNotExist(err)) {
			t.Errorf("Verify() has left %v, %v", files, err)
		}
	}
	if _, err := Verify(Config{FS: fs.NewMemory()}); !errors.Is(err, ErrEmpty) {
		t.Errorf("Verify() of an empty directory = %v, want %v", err, ErrEmpty)
	}
}

// Dump shows every record in order, those of the past included.
func TestDump(t *testing.T) {
	cfg := testConfig(fs.NewMemory())
	l := mustOpen(t, cfg)
	must(t, l.Save(entries(1, 1, 3, 10), hard(1, 2, 0), nil))
	must(t, l.Save(entries(2, 2, 3, 10), hard(2, 0, 1), nil))
	must(t, l.SaveLongestPromise(time.Second))
	must(t, l.SaveSnapshot(snapshot(1, 1)))
	must(t, l.Compact(1))
	must(t, l.Save(nil, nil, snapshot(3, 9)))
	must(t, l.Close())
	var got []string
	_, err := Dump(cfg, func(r *Record) error {
		s := r.Kind
		if r.Entry != nil {
			s = strings.TrimSuffix(raft.DescribeEntry(r.Entry, func([]byte) string { return "" }), " ")
		}
		got = append(got, s)
		return nil
	})
	must(t, err)
	want := []string{
		"base", "checkpoint", // the head of the segment
		"1/1 EntryNormal", "1/2 EntryNormal", "hard state",
		"2/2 EntryNormal", "hard state",
		"promise", "checkpoint", "base", "installed snapshot", "hard state",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Dump() = %q, want %q", got, want)
	}
	stop := errors.New("enough")
	if _, err := Dump(cfg, func(*Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Dump() = %v, want what show returns", err)
	}
}

// A commit index alone is not written, and goes along with the next batch, with
// Flush and with Close.
func TestCommitIndexIsPutOff(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	must(t, l.Save(entries(1, 1, 10, 10), hard(1, 2, 0), nil))
	commit := func() uint64 {
		t.Helper()
		c := cfg
		c.FS = disk.Durable()
		r, err := OpenReadOnly(c)
		must(t, err)
		defer r.Close()
		return r.mu.view.hard.commit
	}
	syncs := l.Stats().Syncs
	must(t, l.Save(nil, hard(1, 2, 5), nil))
	if got := l.Stats().Syncs - syncs; got != 0 || commit() != 0 {
		t.Errorf("%d syncs and commit index %d on disk after a commit, want none", got, commit())
	}
	if h, _, err := l.InitialState(); h.GetCommit() != 5 || err != nil {
		t.Errorf("InitialState() = %v, %v, want commit index 5", h, err)
	}
	must(t, l.Flush())
	if commit() != 5 {
		t.Errorf("commit index %d on disk after Flush, want 5", commit())
	}
	must(t, l.Save(nil, hard(1, 2, 6), nil))
	must(t, l.Save(entries(1, 10, 11, 10), nil, nil))
	if commit() != 6 {
		t.Errorf("commit index %d on disk after an entry, want 6", commit())
	}
	must(t, l.Save(nil, hard(1, 2, 7), nil))
	must(t, l.Close())
	if commit() != 7 {
		t.Errorf("commit index %d on disk after Close, want 7", commit())
	}
}

// The first write of a Ready, one sync, also with everything in it.
func TestOneWriteAndOneSync(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	cfg.SegmentSize = 1 << 20
	l := mustOpen(t, cfg)
	defer l.Close()
	var ops []fs.Kind
	disk.SetHook(func(op fs.Op) *fs.Fault {
		ops = append(ops, op.Kind)
		return nil
	})
	must(t, l.Save(entries(2, 8, 50, 100), hard(2, 1, 7), snapshot(1, 7)))
	if want := []fs.Kind{fs.OpWrite, fs.OpSync}; !slices.Equal(ops, want) {
		t.Errorf("Save() did %v, want %v", ops, want)
	}
}

func TestMaxPromise(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	must(t, l.SaveLongestPromise(2*time.Second))
	syncs := l.Stats().Syncs
	for range 100 {
		must(t, l.SaveLongestPromise(2*time.Second))
	}
	if got := l.Stats().Syncs - syncs; got != 0 {
		t.Errorf("%d syncs for a promise that has not changed, want none", got)
	}
	if err := l.SaveLongestPromise(-1); err == nil {
		t.Error("SaveLongestPromise(-1) = nil")
	}
	// It rises and falls while the node runs, and the last one counts.
	for _, want := range []time.Duration{2 * time.Second, 5 * time.Second, 250 * time.Millisecond} {
		must(t, l.SaveLongestPromise(want))
		cfg.FS = disk.Durable()
		after := mustOpen(t, cfg)
		if d, err := after.LoadLongestPromise(); d != want || err != nil {
			t.Errorf("LoadLongestPromise() after a crash = %v, %v, want %v", d, err, want)
		}
		must(t, after.Close())
	}
	must(t, l.Close())
	if _, err := l.LoadLongestPromise(); !errors.Is(err, ErrClosed) {
		t.Errorf("LoadLongestPromise() after Close = %v, want %v", err, ErrClosed)
	}
}

// No spares at all, which is not what zero means.
func TestNegativeMaxSparesMeansNone(t *testing.T) {
	for _, tt := range []struct {
		max    int
		spares int
	}{{-1, 0}, {0, 2}, {1, 1}} {
		disk := fs.NewMemory()
		cfg := testConfig(disk)
		cfg.MaxSpares = tt.max
		l := mustOpen(t, cfg)
		must(t, compactAll(l, 5))
		files, err := list(disk)
		must(t, err)
		if len(files.spares) != tt.spares {
			t.Errorf("MaxSpares %d: %d spares after compaction, want %d", tt.max, len(files.spares), tt.spares)
		}
		must(t, l.Close())
	}
}

// Any number of segments come and go in the room of a few files.
func TestSegmentsAreRecycled(t *testing.T) {
	disk := fs.NewMemory()
	l := mustOpen(t, testConfig(disk))
	for i := uint64(1); i <= 2000; i++ {
		must(t, l.Save(entries(1, i, i+1, 100), nil, nil))
		if i%10 == 0 {
			must(t, l.SaveSnapshot(snapshot(1, i)))
			must(t, l.Compact(i))
		}
	}
	if used := disk.Used(); used > 4*minSegmentSize {
		t.Errorf("%d bytes in use, want at most four segments of %d", used, minSegmentSize)
	}
	if s := l.Stats(); s.Recycled < s.Segments-3 || s.Segments < 50 {
		t.Errorf("Stats() = %+v, want many segments, nearly all recycled", s)
	}
	must(t, l.Close())
}

// Vote, promise and configuration were written once, in a segment that is gone
// since; each new segment repeats them.
func TestTheRestSurvivesItsSegment(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	must(t, l.Save(nil, hard(3, 2, 0), nil))
	must(t, l.SaveLongestPromise(time.Second))
	must(t, l.Save(nil, nil, snapshot(2, 5)))
	first := l.w.seg.id
	for i := uint64(6); len(l.mu.segments) == 0 || l.mu.segments[0].id < first+3; i++ {
		must(t, l.Save(entries(3, i, i+1, 300), nil, nil))
		if i%10 == 0 {
			must(t, l.SaveSnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &i}}))
			must(t, l.Compact(i))
		}
	}
	cfg.FS = disk.Durable()
	after := mustOpen(t, cfg)
	h, conf, err := after.InitialState()
	if h.GetTerm() != 3 || h.GetVote() != 2 || len(conf.GetVoters()) != 3 || err != nil {
		t.Errorf("InitialState() = %v, %v, %v, want term 3, vote 2 and three voters", h, conf, err)
	}
	if d, err := after.LoadLongestPromise(); d != time.Second || err != nil {
		t.Errorf("LoadLongestPromise() = %v, %v, want 1s", d, err)
	}
	must(t, after.Close())
	must(t, l.Close())
}

func TestConfigValidate(t *testing.T) {
	bad := Config{SegmentSize: 1000, MaxBatchBytes: 1, MaxSnapshotBytes: -1}
	err := bad.Validate()
	if err == nil {
		t.Fatal("Validate() = nil")
	}
	for _, word := range []string{"no directory", "segment size", "max batch", "max snapshot", "no nonce"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("Validate() = %v, which says nothing of %q", err, word)
		}
	}
	good := Config{Dir: "x"}.WithDefaults()
	if err := good.Validate(); err != nil {
		t.Errorf("Validate() of the defaults = %v", err)
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("Open() without a directory = nil")
	}
}

// Files that are not the log's stay, a segment's name that is none is refused.
func TestForeignFiles(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	disk.SetBytes("notes.txt", []byte("mine"))
	must(t, mustOpen(t, cfg).Close())
	if disk.Bytes("notes.txt") == nil {
		t.Error("a foreign file is gone")
	}
	for _, name := range []string{"1.wal", "000000000000000A.wal", "0000000000000000.wal", ".wal"} {
		c := cfg
		clone := disk.Clone()
		clone.SetBytes(name, nil)
		c.FS = clone
		if _, err := Open(c); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Open() with a file %q = %v, want %v", name, err, ErrCorrupt)
		}
	}
}

// A vote in the same term, with no entry, must not be forgotten: the node would
// vote twice.
func TestVoteAloneIsDurable(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	defer l.Close()
	for _, h := range []hardState{{1, 0, 0}, {1, 3, 0}, {2, 3, 0}, {2, 1, 0}} {
		must(t, l.Save(nil, h.proto(), nil))
		c := cfg
		c.FS = disk.Durable()
		r, err := OpenReadOnly(c)
		must(t, err)
		if got := r.mu.view.hard; got != h {
			t.Errorf("hard state on disk %+v, want %+v", got, h)
		}
		must(t, r.Close())
	}
}

// The whole life of a log on a real disk.
func TestLogOnARealDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	cfg := Config{Dir: dir, SegmentSize: 64 << 10, MaxRecentBytes: 4 << 10}
	l := mustOpen(t, cfg)
	want := entries(1, 1, 1001, 200)
	for i := 0; i < len(want); i += 10 {
		must(t, l.Save(want[i:i+10], hard(1, 1, uint64(i)), nil))
	}
	must(t, l.SaveLongestPromise(3*time.Second))
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
	if d, err := l.LoadLongestPromise(); d != 3*time.Second || err != nil {
		t.Errorf("LoadLongestPromise() = %v, %v, want 3s", d, err)
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
	if report.FirstIndex != 501 || report.LastIndex != 1000 || report.LongestPromise != 3*time.Second ||
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

// What the disk takes to write and what it takes to sync are told apart, in buckets that
// are finer than etcd's and have all of its bounds.
func TestStatsTellWriteFromSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := fs.NewMemory()
		l := mustOpen(t, testConfig(disk))
		defer l.Close()
		before := l.Stats()
		disk.SetHook(func(op fs.Op) *fs.Fault {
			switch op.Kind {
			case fs.OpWrite:
				time.Sleep(3 * time.Millisecond)
			case fs.OpSync:
				time.Sleep(200 * time.Microsecond)
			}
			return nil
		})
		must(t, l.Save(entries(1, 1, 1, 10), hard(1, 2, 0), nil))
		disk.SetHook(nil)
		s := l.Stats()
		if s.Syncs != before.Syncs+1 || s.SyncTime-before.SyncTime != 3200*time.Microsecond || s.FlushTime-before.FlushTime != 200*time.Microsecond {
			t.Errorf("Stats() = %+v after %+v, want one sync of 3.2ms, 0.2ms of it without the write", s, before)
		}
		for i, bound := range SyncBounds {
			flushed, synced := s.FlushWithin[i]-before.FlushWithin[i], s.SyncWithin[i]-before.SyncWithin[i]
			if (flushed == 1) != (bound >= 250*time.Microsecond) || (synced == 1) != (bound >= 4*time.Millisecond) {
				t.Errorf("within %v: %d syncs and %d with their write, want it from 250µs and from 4ms on", bound, flushed, synced)
			}
		}
	})
	for bound := time.Millisecond; bound <= 8192*time.Millisecond; bound *= 2 {
		if !slices.Contains(SyncBounds, bound) {
			t.Errorf("SyncBounds lack etcd's %v", bound)
		}
	}
}
