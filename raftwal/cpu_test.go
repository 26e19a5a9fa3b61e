package raftwal

import (
	"fmt"
	"io"
	"testing"

	"github.com/leaderlease/go/raftwal/fs"
)

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
				for _, e := range batch { // nobody reads them
					*e.Index += n
				}
			}
		})
	}
}
