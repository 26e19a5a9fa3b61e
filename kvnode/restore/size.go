package restore

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
)

// What the first two pages of a bbolt database have: a mark, the size of a page, and
// how many pages there are.
const (
	boltMagic    = 0xED0CDAED
	boltMetaAt   = 16 // behind the page's own header
	boltMetaSize = 64
)

// databaseSize returns how long a database says that it is, 0 if the file does not
// begin as one does. Either of its first two pages may be the newer.
func databaseSize(f io.ReaderAt) (size int64) {
	at := int64(boltMetaAt)
	for range 2 {
		meta := make([]byte, boltMetaSize)
		if _, err := f.ReadAt(meta, at); err != nil || binary.NativeEndian.Uint32(meta) != boltMagic {
			return size
		}
		page, pages := binary.NativeEndian.Uint32(meta[8:]), binary.NativeEndian.Uint64(meta[40:])
		if pages < 1<<40 { // else it is damaged, which others say
			size = max(size, int64(pages)*int64(page))
		}
		at = int64(page) + boltMetaAt
	}
	return size
}

// lacking returns how many bytes a snapshot's file of that size lacks, because it was
// cut off. A database without a checksum lacks nothing.
func lacking(f io.ReaderAt, size int64) int64 {
	whole := databaseSize(f)
	if whole == 0 || size == whole || size >= whole+sha256.Size {
		return 0
	}
	return whole + sha256.Size - size
}
