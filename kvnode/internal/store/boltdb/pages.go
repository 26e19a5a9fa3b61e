package boltdb

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// pageWalk reads all pages of a bbolt file that are in use, and checks that each reference between
// pages stays within the file. When bbolt opens a file for writing, it follows these references in
// its own goroutine, where a bad one ends the process. The walk also checks the order of keys, but
// no values: records have checksums.
//
// The layout is bbolt's file format 2, in the machine's byte order.
type pageWalk struct {
	file     *os.File
	pageSize int64
	pages    uint64 // pages in use have lower IDs
	seen     []bool
	inside   bool // within a bucket: buckets are not nested
	depth    int  // depth of the current page below the root
}

const (
	// maxDepth is the highest number of pages from a root to a leaf. bbolt merges branches with
	// a single element, so 2^64 pages need 64 levels.
	maxDepth = 64
	// minPageSize is below the page size of any operating system.
	minPageSize = 512
)

const (
	pageHead    = 16 // id, flags, count, overflow
	branchPage  = 0x01
	leafPage    = 0x02
	elementSize = 16
	bucketLeaf  = 0x01 // flag of an element that is a bucket
	bucketHead  = 16   // root, sequence

	metaMagic   = 0xED0CDAED
	metaVersion = 2
	metaSize    = 64 // the last 8 bytes are a checksum
)

var order = binary.NativeEndian

// checkPages checks the pages of the file path.
func checkPages(path string, pageSize int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	if pageSize < minPageSize {
		return fmt.Errorf("%w: its pages have %d bytes, less than %d", store.ErrDamaged, pageSize, minPageSize)
	}
	w := &pageWalk{file: f, pageSize: int64(pageSize)}
	root, err := w.root()
	if err != nil {
		return err
	}
	if err := w.page(root, nil, nil); err != nil {
		return fmt.Errorf("%w: %w", store.ErrDamaged, err)
	}
	return nil
}

// newestMeta returns the newest valid meta page and its offset. It reads both meta pages
// completely.
func newestMeta(f io.ReaderAt, pageSize int64) (page []byte, at int64, err error) {
	for i := range int64(2) {
		buf := make([]byte, pageSize)
		if _, err := f.ReadAt(buf, i*pageSize); err != nil {
			return nil, 0, fmt.Errorf("%w: meta page %d: %w", store.ErrDamaged, i, err)
		}
		m := buf[pageHead:][:metaSize]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:metaSize-8]) // never fails
		valid := order.Uint32(m) == metaMagic && order.Uint32(m[4:]) == metaVersion && order.Uint64(m[56:]) == sum.Sum64()
		if valid && (page == nil || order.Uint64(m[48:]) > order.Uint64(page[pageHead+48:])) {
			page, at = buf, i*pageSize
		}
	}
	if page == nil {
		return nil, 0, fmt.Errorf("%w: no valid meta page", store.ErrForeign)
	}
	return page, at, nil
}

// root returns the root page of the newest meta page.
func (w *pageWalk) root() (uint64, error) {
	page, _, err := newestMeta(w.file, w.pageSize)
	if err != nil {
		return 0, err
	}
	info, err := w.file.Stat()
	if err != nil {
		return 0, err
	}
	newest := page[pageHead:]
	w.pages = order.Uint64(newest[40:])
	if have := uint64(info.Size() / w.pageSize); w.pages > have {
		return 0, fmt.Errorf("%w: it has %d pages, want %d", store.ErrDamaged, have, w.pages)
	}
	w.seen = make([]bool, w.pages)
	return order.Uint64(newest[16:]), nil
}

// page checks page id and the pages below it. Its keys must be from low to below high; nil is no
// bound.
func (w *pageWalk) page(id uint64, low, high []byte) error {
	if w.depth++; w.depth > maxDepth {
		return fmt.Errorf("page %d: the tree is deeper than %d pages", id, maxDepth)
	}
	defer func() { w.depth-- }()
	buf, err := w.read(id)
	if err != nil {
		return err
	}
	return w.content(id, buf, low, high)
}

// content checks the content of page id.
func (w *pageWalk) content(id uint64, buf, low, high []byte) (err error) {
	count := int64(order.Uint16(buf[10:]))
	if pageHead+count*elementSize > int64(len(buf)) {
		return fmt.Errorf("page %d: %d elements do not fit", id, count)
	}
	flags := order.Uint16(buf[8:])
	if flags != branchPage && flags != leafPage {
		return fmt.Errorf("page %d: unexpected flags %#x", id, flags)
	}
	if flags == branchPage && count == 0 {
		return fmt.Errorf("page %d: branch without elements", id)
	}
	keys := make([][]byte, count)
	for i := range count {
		if keys[i], err = w.element(id, flags, buf, i); err != nil {
			return err
		}
	}
	if i := outOfOrder(keys, low, high); i >= 0 {
		return fmt.Errorf("page %d: key %d is out of order", id, i)
	}
	if flags == leafPage {
		return nil
	}
	for i := range count {
		next := high
		if i+1 < count {
			next = keys[i+1]
		}
		if err := w.page(order.Uint64(buf[pageHead+i*elementSize+8:]), keys[i], next); err != nil {
			return err
		}
	}
	return nil
}

// outOfOrder returns the index of the first key that is not above the one before or is out of
// bounds, -1 for none.
func outOfOrder(keys [][]byte, low, high []byte) int {
	for i, key := range keys {
		switch {
		case i == 0 && low != nil && bytes.Compare(key, low) < 0,
			i > 0 && bytes.Compare(keys[i-1], key) >= 0,
			high != nil && bytes.Compare(key, high) >= 0:
			return i
		}
	}
	return -1
}

// read returns a page with its overflow pages.
func (w *pageWalk) read(id uint64) ([]byte, error) {
	head := make([]byte, pageHead)
	if id < 2 || id >= w.pages {
		return nil, fmt.Errorf("page %d is not among the %d in use", id, w.pages)
	}
	if _, err := w.file.ReadAt(head, int64(id)*w.pageSize); err != nil {
		return nil, err
	}
	more := uint64(order.Uint32(head[12:]))
	if got := order.Uint64(head); got != id || id+more >= w.pages {
		return nil, fmt.Errorf("page %d: its header has id %d and says that %d more pages follow, but %d pages are in use in all", id, got, more, w.pages)
	}
	for i := id; i <= id+more; i++ {
		if w.seen[i] {
			return nil, fmt.Errorf("page %d is referred to twice", i)
		}
		w.seen[i] = true
	}
	buf := make([]byte, int64(more+1)*w.pageSize)
	_, err := w.file.ReadAt(buf, int64(id)*w.pageSize)
	return buf, err
}

// element returns the key of element i. If the element is a bucket, it checks the bucket.
func (w *pageWalk) element(id uint64, flags uint16, buf []byte, i int64) ([]byte, error) {
	at := pageHead + i*elementSize
	pos, keySize, valueSize := int64(order.Uint32(buf[at:])), int64(order.Uint32(buf[at+4:])), int64(0)
	bucket := false
	if flags == leafPage {
		bucket = order.Uint32(buf[at:])&bucketLeaf != 0
		pos, keySize, valueSize = keySize, int64(order.Uint32(buf[at+8:])), int64(order.Uint32(buf[at+12:]))
	}
	if at+pos+keySize+valueSize > int64(len(buf)) {
		return nil, fmt.Errorf("page %d: element %d does not fit", id, i)
	}
	key, value := buf[at+pos:][:keySize], buf[at+pos+keySize:][:valueSize]
	if !bucket {
		return key, nil
	}
	return key, w.bucket(id, value)
}

// bucket checks a bucket, which is the value of an element of page id. A record that is flagged as
// a bucket could otherwise lead bbolt into a cycle.
func (w *pageWalk) bucket(id uint64, value []byte) error {
	if w.inside {
		return fmt.Errorf("page %d: a bucket within a bucket", id)
	}
	w.inside = true
	defer func() { w.inside = false }()
	if len(value) < bucketHead {
		return fmt.Errorf("page %d: bucket of %d bytes", id, len(value))
	}
	if root := order.Uint64(value); root != 0 {
		return w.page(root, nil, nil)
	}
	// A small bucket is stored inline, without a page of its own.
	if len(value) < bucketHead+pageHead {
		return fmt.Errorf("page %d: bucket of %d bytes without a page", id, len(value))
	}
	return w.content(id, value[bucketHead:], nil, nil)
}
