package raftwal

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"github.com/leaderlease/go/raftwal/fs"
)

// maxSegmentID is the last id that the index can hold.
const maxSegmentID = math.MaxUint32

// segment is an open segment. The log holds one reference to it, and each
// reader that uses it without the log's lock another.
type segment struct {
	header
	name string  // immutable
	crc  uint32  // of the header; immutable
	file fs.File // immutable

	refs atomic.Int32
}

// openSegment opens segment id and reads its header. The caller owns one
// reference.
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

// release gives a reference back. The last one closes the file.
func (s *segment) release() error {
	if s.refs.Add(-1) > 0 {
		return nil
	}
	return s.file.Close()
}

func (s *segment) corrupt(offset int64, format string, args ...any) error {
	return &CorruptError{File: s.name, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}
