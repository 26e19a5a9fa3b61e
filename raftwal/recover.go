package raftwal

import (
	"errors"
	"fmt"

	"github.com/leaderlease/go/raftwal/fs"
)

// Torn is the rest of a batch that a crash has interrupted.
type Torn struct {
	// File and Offset are where the batch begins.
	File   string
	Offset int64
	// Reason is what of it is not there.
	Reason string
}

// recovered is a log as it was found.
type recovered struct {
	view     view
	report   Report
	segments []*segment
	tail     tail
}

// recoverLog reads the whole log and changes nothing. Without a log it returns
// ErrEmpty. On error, no segment is left open.
func recoverLog(open func(string) (fs.File, error), l listing, maxRecent int64, visit visitor) (_ *recovered, err error) {
	switch {
	case len(l.segments) == 0 && l.marked:
		return nil, &CorruptError{File: markerName, Reason: "the log has begun, and all its segments are missing"}
	case len(l.segments) == 0:
		return nil, ErrEmpty
	}
	out := &recovered{}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(out.segments))
		}
	}()
	for _, id := range l.segments {
		s, err := openSegment(open, id)
		if err != nil {
			return nil, err
		}
		out.segments = append(out.segments, s)
	}
	c := &scan{view: newView(out.segments[0].nextIndex, maxRecent), visit: visit}
	if next := out.segments[0].nextIndex; next == 0 || next > maxIndex {
		return nil, out.segments[0].corrupt(0, "index %d is not an entry's", next)
	}
	for i, s := range out.segments {
		var next *segment
		if i+1 < len(out.segments) {
			next = out.segments[i+1]
		}
		if out.tail, err = c.sealed(s, next); err != nil {
			return nil, err
		}
	}
	if reason := c.view.missing(); reason != "" {
		return nil, out.segments[0].corrupt(0, "%s", reason)
	}
	c.view.hard.cover(c.view.snap.GetMetadata().GetIndex())
	out.view, out.report = c.view, c.report
	out.report.fill(&out.view, out.segments)
	return out, nil
}

// sealed replays a segment, which the header of the next one says the end of.
// Without a next one the end is where the batches end.
func (c *scan) sealed(s, next *segment) (tail, error) {
	if want := c.view.last() + 1; s.nextIndex != want {
		return tail{}, s.corrupt(0, "the segment continues the log at %d, not at %d", s.nextIndex, want)
	}
	if next == nil {
		return c.open(s)
	}
	if next.prevEnd < headerSize || next.prevEnd > s.size {
		return tail{}, next.corrupt(0, "the segment before has %d bytes and ends at %d", s.size, next.prevEnd)
	}
	t, err := c.segment(s, int64(next.prevEnd))
	switch {
	case err != nil:
		return t, err
	case t.reason != "":
		return t, s.corrupt(t.end, "%s", t.reason)
	case t.chain != next.prevChain || t.number != next.firstBatch:
		return t, next.corrupt(0, "the segment does not continue the one before")
	}
	return t, nil
}

// open replays the last segment. Where no valid batch follows any more the log
// ends, unless there is proof of the contrary.
func (c *scan) open(s *segment) (tail, error) {
	t, err := c.segment(s, int64(s.size))
	if err != nil || t.reason == "" {
		return t, err
	}
	if t.end < int64(s.sealed) {
		return t, s.corrupt(t.end, "%s", t.reason)
	}
	// Batch n+1 is written when batch n is durable: if a batch begins further
	// on, this one was whole.
	at, found, err := c.laterBatch(s, t.end)
	if err != nil {
		return t, err
	}
	if found {
		return t, s.corrupt(t.end, "%s, yet a batch follows at %d", t.reason, at)
	}
	if t.begun {
		c.report.Torn = &Torn{File: s.name, Offset: t.end, Reason: t.reason}
	}
	return t, nil
}

func closeAll(segments []*segment) error {
	var errs []error
	for _, s := range segments {
		if err := s.release(); err != nil {
			errs = append(errs, fmt.Errorf("raftwal: close %s: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}
