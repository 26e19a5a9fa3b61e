package restore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Sizes above 32 bits are counted right.
func TestASnapshotMayBeLarge(t *testing.T) {
	const page, pages = 4096, 3 << 20 // 12 GiB
	head := make([]byte, 2*page)
	for at := boltMetaAt; at < len(head); at += page {
		binary.NativeEndian.PutUint32(head[at:], boltMagic)
		binary.NativeEndian.PutUint32(head[at+8:], page)
		binary.NativeEndian.PutUint64(head[at+40:], pages)
	}
	path := writeFile(t, head)
	for size, lacks := range map[int64]int64{pages*page + 32: 0, pages * page: 0, 1 << 31: pages*page + 32 - 1<<31, pages*page - page: page + 32} {
		if err := os.Truncate(path, size); err != nil { // which takes no room
			t.Skip(err)
		}
		f, got, err := openSnapshotFile(path)
		if lacks == 0 && (err != nil || got != size) || lacks > 0 && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("lacks %d", lacks))) {
			t.Errorf("a file of %d bytes of %d = %d, %v, want that it lacks %d", size, int64(pages*page), got, err, lacks)
		}
		if f != nil {
			_ = f.Close()
		}
	}
}

// The error for a truncated snapshot says so, wherever it ends. A complete one is accepted with or
// without its checksum.
func TestASnapshotThatIsCutOff(t *testing.T) {
	_, data := savedSnapshot(t)
	for _, size := range []int{100, 4096, 8191, 16 << 10, len(data) / 2, len(data) - 4096, len(data) - 33, len(data) - 31, len(data) - 1} {
		file := writeFile(t, data[:size])
		_, err := Inspect(file)
		want := fmt.Sprintf("is cut off: it has %d bytes, and lacks %d", size, len(data)-size)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("Inspect(%d of %d bytes) = %v, want that it %s", size, len(data), err, want)
		}
		for _, skip := range []bool{false, true} {
			cfg := restoreOf(t, file)
			cfg.SkipHashCheck = skip
			_, err = Snapshot(cfg)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Snapshot(%d of %d bytes) = %v, want that it %s", size, len(data), err, want)
			}
		}
	}
	for _, size := range []int{len(data), len(data) - 32} {
		if _, err := Inspect(writeFile(t, data[:size])); err != nil {
			t.Errorf("Inspect(%d of %d bytes) = %v, want nil", size, len(data), err)
		}
	}
}
