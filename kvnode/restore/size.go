package restore

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
)

// The layout of the two meta pages at the start of a bbolt database.
const (
	boltMagic    = 0xED0CDAED
	boltMetaAt   = 16 // behind the page's header
	boltMetaSize = 64
)

// databaseSize returns the size that a database's meta pages give, and 0 if the file does not
// begin with one. Either page may be the newer one, so the larger size counts.
func databaseSize(f io.ReaderAt) (size int64) {
	at := int64(boltMetaAt)
	for range 2 {
		meta := make([]byte, boltMetaSize)
		if _, err := f.ReadAt(meta, at); err != nil || binary.NativeEndian.Uint32(meta) != boltMagic {
			return size
		}
		page, pages := binary.NativeEndian.Uint32(meta[8:]), binary.NativeEndian.Uint64(meta[40:])
		if pages < 1<<40 { // else the page is damaged, which a later check reports
			size = max(size, int64(pages)*int64(page))
		}
		at = int64(page) + boltMetaAt
	}
	return size
}

// lacking returns how many bytes are missing at the end of a snapshot file of that size. A
// complete database without a checksum lacks nothing.
func lacking(f io.ReaderAt, size int64) int64 {
	whole := databaseSize(f)
	if whole == 0 || size == whole || size >= whole+sha256.Size {
		return 0
	}
	return whole + sha256.Size - size
}
