package store_test

import (
	"path/filepath"
	"testing"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// BenchmarkLoad is a start with a million keys that were written in order, or in none.
func BenchmarkLoad(b *testing.B) {
	for _, order := range []struct {
		name string
		keys func([][]byte) [][]byte
	}{
		{"ordered", func(keys [][]byte) [][]byte { return keys }},
		{"shuffled", benchOrder},
	} {
		b.Run(order.name, func(b *testing.B) {
			backend, err := boltdb.Open(filepath.Join(b.TempDir(), "db"))
			if err != nil {
				b.Fatal(err)
			}
			s, err := store.Open(store.Config{Backend: backend})
			if err != nil {
				b.Fatal(err)
			}
			for i, key := range order.keys(benchKeys(1_000_000)) {
				if r := s.Apply(uint64(i+1), 1, putCommand(b, key, make([]byte, 256))); r.Err != nil {
					b.Fatal(r.Err)
				}
				if i%100_000 == 99_999 {
					if _, err := s.Checkpoint(nil); err != nil {
						b.Fatal(err)
					}
				}
			}
			s = nil
			b.ReportAllocs()
			for b.Loop() {
				if _, err := store.Open(store.Config{Backend: backend}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
