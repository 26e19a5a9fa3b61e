package raftwal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/leaderlease/go/raftwal/fs"
)

// maxSegmentID is the largest id in the index of entries (place).
const maxSegmentID = math.MaxUint32

// segment is an open segment. The log has one reference to it. Each reader without the
// log's lock has another.
type segment struct {
	header
	name string  // immutable
	crc  uint32  // of the header; immutable
	file fs.File // immutable

	refs atomic.Int32
}

// openSegment opens segment id and reads its header. The caller has one reference.
func openSegment(open func(string) (fs.File, error), id uint64) (*segment, error) {
	name := segmentName(id)
	f, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("raftwal: open segment: %w", err)
	}
	s := &segment{name: name, file: f}
	s.refs.Store(1)
	if err := s.readHeader(id); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func (s *segment) readHeader(id uint64) error {
	size, err := s.file.Size()
	if err != nil {
		return fmt.Errorf("raftwal: size of %s: %w", s.name, err)
	}
	var b [headerSize]byte
	if n, err := s.file.ReadAt(b[:], 0); err != nil && !(errors.Is(err, io.EOF) && n == int(min(size, headerSize))) {
		return fmt.Errorf("raftwal: read the header of %s: %w", s.name, err)
	}
	if size < headerSize {
		return &CorruptError{File: s.name, Offset: size, Reason: "the file ends within the header"}
	}
	h, crc, reason := parseHeader(b[:], id, size)
	if reason != "" {
		return &CorruptError{File: s.name, Reason: reason}
	}
	s.header, s.crc = h, crc
	return nil
}

// retain takes a reference, under the log's lock.
func (s *segment) retain() { s.refs.Add(1) }

// release drops a reference. The last one closes the file.
func (s *segment) release() error {
	if s.refs.Add(-1) > 0 {
		return nil
	}
	return s.file.Close()
}

func (s *segment) corrupt(offset int64, format string, args ...any) error {
	return &CorruptError{File: s.name, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// A segment begins with a header in a sector of its own, which is written once:
//
//	0   8 bytes magic
//	8   uint32  version of the format
//	12  uint32  zero
//	16  uint64  id of the segment; the name of the file is this in hexadecimal
//	24  uint64  size of the file
//	32  uint64  nonce, random for each use of a file
//	40  uint64  number of the first batch
//	48  uint64  index of the next entry when the segment began
//	56  uint64  end of the batches that were durable before the file got its name
//	64  uint64  end of the segment before
//	72  uint32  CRC at that end
//	76  zeros
//	508 uint32  CRC-32C of all that
const (
	headerSize = 512
	magic      = "raftwal\x1a"
	version    = 1
)

// header is the header of a segment.
type header struct {
	id, size, nonce       uint64
	firstBatch, nextIndex uint64
	sealed                uint64
	prevEnd               uint64
	prevChain             uint32
}

// encode writes the header and returns its CRC.
func (h *header) encode(b []byte) uint32 {
	clear(b[:headerSize])
	copy(b, magic)
	le.PutUint32(b[8:], version)
	for i, v := range []uint64{h.id, h.size, h.nonce, h.firstBatch, h.nextIndex, h.sealed, h.prevEnd} {
		le.PutUint64(b[16+8*i:], v)
	}
	le.PutUint32(b[72:], h.prevChain)
	crc := crc32.Checksum(b[:headerSize-crcSize], castagnoli)
	le.PutUint32(b[headerSize-crcSize:], crc)
	return crc
}

// parseHeader parses the header of segment id in a file of size bytes. If it is invalid,
// reason is not empty.
func parseHeader(b []byte, id uint64, size int64) (h header, crc uint32, reason string) {
	if string(b[:len(magic)]) != magic {
		return h, 0, "this is not a segment"
	}
	crc = crc32.Checksum(b[:headerSize-crcSize], castagnoli)
	if crc != le.Uint32(b[headerSize-crcSize:]) {
		return h, 0, "the CRC of the header does not match"
	}
	if v := le.Uint32(b[8:]); v != version {
		return h, 0, fmt.Sprintf("the format is version %d, not %d", v, version)
	}
	for i, v := range []*uint64{&h.id, &h.size, &h.nonce, &h.firstBatch, &h.nextIndex, &h.sealed, &h.prevEnd} {
		*v = le.Uint64(b[16+8*i:])
	}
	h.prevChain = le.Uint32(b[72:])
	switch {
	case h.id != id:
		return h, 0, fmt.Sprintf("this is segment %d under the name of segment %d", h.id, id)
	case h.size != uint64(size):
		return h, 0, fmt.Sprintf("the file has %d bytes, and had %d", size, h.size)
	case h.size > math.MaxUint32:
		return h, 0, fmt.Sprintf("%d bytes are more than a segment can have", h.size)
	case h.sealed < headerSize || h.sealed > h.size:
		return h, 0, "the header contradicts itself"
	}
	return h, crc, ""
}

// The names of a log's files. The ids of the segments have no gaps. Behind the last batch of
// a segment are zeros, or bytes of an earlier use of the file. A spare is a file for a later
// segment. Its content has no meaning.
const (
	segmentSuffix = ".wal"
	spareSuffix   = ".spare"
	lockName      = "lock"
)

func segmentName(id uint64) string { return fmt.Sprintf("%016x", id) + segmentSuffix }
func spareName(id uint64) string   { return fmt.Sprintf("%016x", id) + spareSuffix }

// parseName returns the id in a file's name.
func parseName(name, suffix string) (id uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 16, 64)
	return id, err == nil && fmt.Sprintf("%016x", id) == digits
}

// listing has the files of a directory.
type listing struct {
	segments []uint64 // ascending, without gaps
	spares   []uint64 // ascending
	marked   bool     // the marker exists
}

func list(dir fs.FS) (l listing, err error) {
	names, err := dir.Names()
	if err != nil {
		return l, fmt.Errorf("raftwal: list the log: %w", err)
	}
	l.marked = slices.Contains(names, markerName)
	for _, name := range names {
		if id, ok := parseName(name, spareSuffix); ok {
			l.spares = append(l.spares, id)
		}
		if !strings.HasSuffix(name, segmentSuffix) {
			continue
		}
		id, ok := parseName(name, segmentSuffix)
		if !ok || id == 0 || id > maxSegmentID {
			return l, &CorruptError{File: name, Reason: "this is not the name of a segment"}
		}
		l.segments = append(l.segments, id)
	}
	slices.Sort(l.segments)
	slices.Sort(l.spares)
	for i := 1; i < len(l.segments); i++ {
		if want := l.segments[i-1] + 1; l.segments[i] != want {
			return l, &CorruptError{File: segmentName(want), Reason: "this segment is missing"}
		}
	}
	return l, nil
}

// markerName is the marker, an empty file. If it exists, the log had durable segments, so
// an empty directory is damage. Open adds it to the logs of former versions.
const markerName = "begun"

// putMarker makes the marker if it is missing. Call it only when the name of the first
// segment is durable. A log with the marker and without a segment cannot be opened.
func (l *Log) putMarker(files listing) error {
	if files.marked {
		return nil
	}
	f, err := l.dir.Create(markerName)
	if fs.IsNoSpace(err) {
		// A full disk must not keep the log from opening. The next Open tries again.
		l.cfg.Logger.Warn("no room for the marker", "file", markerName, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("raftwal: create %s: %w", markerName, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("raftwal: close %s: %w", markerName, err)
	}
	if err := l.syncDir(); err != nil {
		return fmt.Errorf("raftwal: %w", noSpace(err))
	}
	return nil
}
