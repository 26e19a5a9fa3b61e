package boltdb

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// inMemory returns how many KiB of a mapped file are resident.
func inMemory(t *testing.T, path string) (kib int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), path) {
			kib = 0
			_, rest, _ := strings.Cut(string(maps), line)
			_, rest, _ = strings.Cut(rest, "\nRss:")
			_, _ = fmt.Sscan(rest, &kib)
			return kib
		}
	}
	t.Fatalf("%s is not mapped", path)
	return 0
}

// After all records were read, the file is not resident in the process, and can still be read.
func TestRecordsThatWereReadTakeNoMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	const records, length = 2000, 4 << 10
	if err := b.Update(func(tx store.Tx) (err error) {
		for i := range records {
			if err = tx.SetRecord(fmt.Appendf(nil, "%08d", i), bytes.Repeat([]byte{byte(i)}, length)); err != nil {
				break
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	img, err := b.View()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = img.Close() })
	for range 2 {
		n, most := 0, 0
		if err := img.Records(func(_, value []byte) error {
			if n++; n == records {
				most = inMemory(t, path)
			}
			if want := bytes.Repeat([]byte{byte(n - 1)}, length); !bytes.Equal(value, want) {
				t.Errorf("record %d is not what was written", n)
			}
			return nil
		}); err != nil || n != records {
			t.Fatalf("%d records, %v", n, err)
		}
		if left := inMemory(t, path); most < records*length>>11 || left > most/10 {
			t.Errorf("%d KiB of the file are in memory, and %d while it was read", left, most)
		}
	}
}
