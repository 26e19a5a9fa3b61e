package raftwal

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/leaderlease/go/raftwal/fs"
)

// Torn is the last batch of a log if a crash has interrupted its write. Open removes it
// durably.
//
// A batch is written only after the one before is durable, so a crash leaves at most the
// last one incomplete. Any other invalid bytes are damage, and Open refuses the log,
// because the node may have acknowledged what was lost. To tell the two apart, Open
// searches for a later batch in the segment. Each batch begins with a mark that depends on
// its segment and offset, so it is found even if the lengths before it are damaged.
//
// Open cannot detect these:
//   - damage within the last batch, or from within a batch to the end of the log. It looks
//     like a torn batch. But Open detects a shorter file and damage to the beginning of a
//     segment: size and beginning were synced before the file got its name.
//   - that the last segments are missing as a whole, as in an old backup. If all are
//     missing, the file "begun" is still there, and Open refuses. An empty directory is a
//     new log.
type Torn struct {
	// File and Offset are the beginning of the batch.
	File   string
	Offset int64
	// Reason is the first error in the batch.
	Reason string
}

// recovered is the result of recoverLog.
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
		if out.tail, err = c.replaySegment(s, next); err != nil {
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

// replaySegment replays a segment up to its end, which is in the header of the next one. The
// last segment ends with its last valid batch.
func (c *scan) replaySegment(s, next *segment) (tail, error) {
	if want := c.view.last() + 1; s.nextIndex != want {
		return tail{}, s.corrupt(0, "the segment continues the log at %d, not at %d", s.nextIndex, want)
	}
	if next == nil {
		return c.replayLast(s)
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

// replayLast replays the last segment. The log ends with the last valid batch, unless a later
// batch proves damage.
func (c *scan) replayLast(s *segment) (tail, error) {
	t, err := c.segment(s, int64(s.size))
	if err != nil || t.reason == "" {
		return t, err
	}
	if t.end < int64(s.sealed) {
		return t, s.corrupt(t.end, "%s", t.reason)
	}
	// Batch n+1 is written after batch n is durable. So if there is a later batch, this one
	// was complete.
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

// settle makes durable what Open has read. If the process before died between a write and
// its sync, or the sync failed, the last batch may be in the page cache only. settle writes
// it again, because another sync does not repeat the work of a failed one.
func (l *Log) settle() error {
	s, t := l.w.seg, &l.w.tail
	if t.start >= int64(s.sealed) {
		b := make([]byte, t.end-t.start)
		if _, err := s.file.ReadAt(b, t.start); err != nil {
			return fmt.Errorf("raftwal: read the last batch of %s: %w", s.name, err)
		}
		// Do not overwrite acknowledged bytes with ones that memory or the disk has changed
		// since the first read.
		if reason := t.differs(b, s.nonce); reason != "" {
			return s.corrupt(t.start, "the last batch was valid, and a moment later not: %s", reason)
		}
		if _, err := s.file.WriteAt(b, t.start); err != nil {
			return fmt.Errorf("raftwal: write the last batch of %s again: %w", s.name, noSpace(err))
		}
		if err := s.file.Sync(); err != nil {
			return fmt.Errorf("raftwal: sync %s: %w", s.name, noSpace(err))
		}
	}
	if err := l.syncDir(); err != nil {
		return fmt.Errorf("raftwal: %w", noSpace(err))
	}
	return nil
}

// differs returns the first difference between b and the batch that t was read from, or "".
func (t *tail) differs(b []byte, nonce uint64) (reason string) {
	p, reason := parseBatchHeader(b, nonce, uint64(t.start), t.before)
	if reason != "" {
		return reason
	}
	last, reason := new(scan).parse(b[batchHeader:], p.crc)
	if reason == "" && last != t.chain {
		reason = "it is another batch"
	}
	return reason
}

// cut removes an incomplete batch durably, so that no later Open finds it.
func (l *Log) cut() error {
	torn := l.report.Torn
	if torn == nil {
		return nil
	}
	l.cfg.Logger.Warn("cut a torn tail", "file", torn.File, "offset", torn.Offset, "reason", torn.Reason)
	var zeros [batchHeader]byte
	if _, err := l.w.seg.file.WriteAt(zeros[:], torn.Offset); err != nil {
		return fmt.Errorf("raftwal: cut the torn tail of %s: %w", torn.File, noSpace(err))
	}
	if err := l.w.seg.file.Sync(); err != nil {
		return fmt.Errorf("raftwal: cut the torn tail of %s: %w", torn.File, noSpace(err))
	}
	return nil
}

// noSpace gives the error of a full disk its type. On some file systems even overwriting
// needs space.
func noSpace(err error) error {
	if fs.IsNoSpace(err) {
		return &NoSpaceError{Cause: err}
	}
	return err
}

// maxIndex leaves room to count beyond it without overflow.
const maxIndex = math.MaxInt64

// replay applies a record to the view. If the record is invalid, reason is not empty.
func (v *view) replay(r *record, at place) (reason string) {
	switch r.kind {
	case recordEntry:
		return v.replayEntry(r, at)
	case recordHard:
		return v.replayHard(r)
	case recordInstall, recordCheckpoint:
		return v.replaySnapshot(r)
	case recordBase:
		return v.replayBase(r)
	case recordPromise:
		if len(r.payload) != promisePayload {
			return "a promise has the wrong length"
		}
		v.promise = time.Duration(le.Uint64(r.payload))
		return ""
	default:
		return fmt.Sprintf("a record has the unknown type %d", r.kind)
	}
}

func (v *view) replayEntry(r *record, at place) string {
	id, ok := parseEntryID(r)
	switch {
	case !ok:
		return "an entry is too short"
	case id.index <= v.base.index || id.index > v.last()+1:
		return fmt.Sprintf("entry %d does not continue the log from %d to %d", id.index, v.base.index+1, v.last())
	}
	v.put(id, at)
	return ""
}

func (v *view) replayHard(r *record) string {
	if len(r.payload) != hardPayload {
		return "a hard state has the wrong length"
	}
	v.hard = hardState{term: le.Uint64(r.payload), vote: le.Uint64(r.payload[8:]), commit: le.Uint64(r.payload[16:])}
	return ""
}

func (v *view) replaySnapshot(r *record) string {
	snap, err := parseSnapshot(r)
	if err != nil {
		return err.Error()
	}
	if snap.GetMetadata().GetIndex() > maxIndex {
		return "a snapshot has an index that no log reaches"
	}
	if r.kind == recordCheckpoint {
		v.snap = snap
		return ""
	}
	v.install(snap)
	return ""
}

func (v *view) replayBase(r *record) string {
	if len(r.payload) != basePayload {
		return "a base has the wrong length"
	}
	base := entryID{term: le.Uint64(r.payload), index: le.Uint64(r.payload[8:])}
	if base.index < v.base.index || base.index > v.last() {
		return fmt.Sprintf("base %d is outside of the log from %d to %d", base.index, v.base.index+1, v.last())
	}
	v.compact(base)
	return ""
}

// missing returns the entries that the segments should have and do not have, or "".
func (v *view) missing() string {
	if v.first <= v.base.index+1 {
		return ""
	}
	return fmt.Sprintf("entries %d to %d are missing, with the segment that held them", v.base.index+1, v.first-1)
}
