package raftwal

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal/fs"
)

// bench makes one batch durable. Only that is timed.
type bench func(entries []*raftpb.Entry) error

// BenchmarkSave compares the log with what the disk does at best. The module in
// raftwal/bench has more to compare with.
func BenchmarkSave(b *testing.B) {
	arms := []struct {
		name string
		open func(b *testing.B, dir string) bench
	}{
		{"append", func(b *testing.B, dir string) bench { return benchFile(b, dir, false) }},
		{"zeros", func(b *testing.B, dir string) bench { return benchFile(b, dir, true) }},
		{"raftwal", benchLog},
		{"bbolt", benchBolt},
	}
	data := make([]byte, 256)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	for _, n := range []int{1, 16, 256} {
		for _, arm := range arms {
			b.Run(fmt.Sprintf("batch=%d/log=%s", n, arm.name), func(b *testing.B) {
				save := arm.open(b, b.TempDir())
				var took []time.Duration
				index := uint64(1)
				for b.Loop() {
					batch := make([]*raftpb.Entry, n)
					for i := range batch {
						batch[i] = &raftpb.Entry{Term: new(uint64(1)), Index: new(index), Data: data}
						index++
					}
					began := time.Now()
					must(b, save(batch))
					took = append(took, time.Since(began))
				}
				reportBench(b, took, n)
			})
		}
	}
}

func reportBench(b *testing.B, took []time.Duration, n int) {
	slices.Sort(took)
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	b.ReportMetric(float64(len(took)*n)/sum.Seconds(), "entries/s")
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
}

// benchFile writes as many bytes as the log does, into a growing file or into
// one that was filled before.
func benchFile(b *testing.B, dir string, filled bool) bench {
	const size = 64 << 20
	d, err := fs.OS(dir)
	must(b, err)
	f, err := d.Create("log")
	must(b, err)
	b.Cleanup(func() { must(b, f.Close()) })
	if filled {
		for off := int64(0); off < size; off += int64(len(zeros)) {
			_, err := f.WriteAt(zeros[:], off)
			must(b, err)
		}
		must(b, f.Sync())
	}
	buf, off := make([]byte, 1<<20), int64(0)
	return func(entries []*raftpb.Entry) error {
		n := int64(batchHeader + recordSize(hardPayload) + len(entries)*recordSize(entryHeader+256))
		if filled && off+n > size {
			off = 0
		}
		if _, err := f.WriteAt(buf[:n], off); err != nil {
			return err
		}
		off += n
		return f.Sync()
	}
}

func benchLog(b *testing.B, dir string) bench {
	l, err := Open(Config{Dir: dir})
	must(b, err)
	b.Cleanup(func() { must(b, l.Close()) })
	return func(entries []*raftpb.Entry) error {
		return l.Save(entries, hard(1, 1, entries[0].GetIndex()-1), nil)
	}
}

func benchBolt(b *testing.B, dir string) bench {
	db, err := bolt.Open(filepath.Join(dir, "db"), 0o600, nil)
	must(b, err)
	b.Cleanup(func() { must(b, db.Close()) })
	return func(entries []*raftpb.Entry) error {
		return db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("log"))
			if err != nil {
				return err
			}
			for _, e := range entries {
				if err := bucket.Put(le.AppendUint64(nil, e.GetIndex()), e.GetData()); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Appending allocates nothing for an entry: what a Save allocates does not
// depend on how many there are.
func TestSaveAllocatesNothingPerEntry(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := mustOpen(t, Config{Dir: t.TempDir(), SegmentSize: 8 << 20, Inline: true})
	defer l.Close()
	const runs, n = 50, 256
	var batches [][]*raftpb.Entry
	for i := range uint64(3*runs + 6) {
		batches = append(batches, entries(1, 1+i*n, 1+(i+1)*n, 16))
	}
	next := 0
	save := func() {
		must(t, l.Save(batches[next], nil, nil))
		next++
	}
	for range 2 * runs { // the index and the recent entries have grown
		save()
	}
	if got := testing.AllocsPerRun(runs, save); got > 8 {
		t.Errorf("%v allocations for a batch of %d entries, want a few", got, n)
	}
}

// BenchmarkRecover opens a log of RAFTWAL_RECOVER_MB (default 64) megabytes.
func BenchmarkRecover(b *testing.B) {
	mb := 64
	if s := os.Getenv("RAFTWAL_RECOVER_MB"); s != "" {
		_, err := fmt.Sscan(s, &mb)
		must(b, err)
	}
	cfg := Config{Dir: b.TempDir(), Inline: true}
	l := mustOpen(b, cfg)
	for i := uint64(1); l.stats.bytes.Load() < uint64(mb)<<20; i += 1024 {
		must(b, l.Save(entries(1, i, i+1024, 256), nil, nil))
	}
	must(b, l.Close())
	b.SetBytes(int64(mb) << 20)
	b.ReportAllocs()
	for b.Loop() {
		l, err := OpenReadOnly(cfg)
		must(b, err)
		must(b, l.Close())
	}
}

// freeDisk is a disk that costs nothing and keeps nothing.
type freeDisk struct{ fs.FS }

type freeFile struct{}

func (freeDisk) Create(string) (fs.File, error)             { return freeFile{}, nil }
func (freeDisk) Open(string) (fs.File, error)               { return freeFile{}, nil }
func (freeDisk) Rename(string, string) error                { return nil }
func (freeDisk) Sync() error                                { return nil }
func (freeFile) ReadAt(p []byte, _ int64) (int, error)      { return len(p), io.EOF }
func (freeFile) WriteAt(p []byte, _ int64) (n int, _ error) { return len(p), nil }
func (freeFile) Sync() error                                { return nil }
func (freeFile) Size() (int64, error)                       { return 0, nil }
func (freeFile) Close() error                               { return nil }

// BenchmarkSaveCPU is what a Save costs besides the disk.
func BenchmarkSaveCPU(b *testing.B) {
	for _, n := range []uint64{1, 16, 256} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			l := mustOpen(b, Config{FS: freeDisk{fs.NewMemory()}, Inline: true})
			defer l.Close()
			batch := entries(1, 1, 1+n, 256)
			h := hard(1, 1, 1)
			b.ReportAllocs()
			for b.Loop() {
				must(b, l.Save(batch, h, nil))
				for _, e := range batch { // no reader uses them any more
					*e.Index += n
				}
			}
		})
	}
}
