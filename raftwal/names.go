package raftwal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leaderlease/go/raftwal/fs"
)

// The files of a log, besides the marker. A segment that is not in use yet, or any more, is a
// spare: its contents mean nothing.
const (
	segmentSuffix = ".wal"
	spareSuffix   = ".spare"
	lockName      = "lock"
)

func segmentName(id uint64) string { return fmt.Sprintf("%016x", id) + segmentSuffix }
func spareName(id uint64) string   { return fmt.Sprintf("%016x", id) + spareSuffix }

// parseName returns the number in a file's name.
func parseName(name, suffix string) (id uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 16, 64)
	return id, err == nil && fmt.Sprintf("%016x", id) == digits
}

// listing is what a directory holds.
type listing struct {
	segments []uint64 // ascending, without gaps
	spares   []uint64 // ascending
	marked   bool     // there is a marker
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
