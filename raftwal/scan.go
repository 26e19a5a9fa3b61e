package raftwal

import (
	"fmt"
	"io"

	"github.com/leaderlease/go/raftwal/fs"
)

// scan reads segments from beginning to end and changes nothing.
type scan struct {
	view   view
	report Report
	// visit, if set, is called for every record of every valid batch.
	visit func(s *segment, offset int64, number uint64, r *record) error

	// buf is a part of the file, from offset start on.
	buf   []byte
	start int64
	file  fs.File
	size  int64

	records []record // of one batch
}

// windowSize is the size of one read. It is small enough to stay in the CPU's cache until
// the bytes are parsed.
const windowSize = 512 << 10

// tail is the end of a segment's valid batches.
type tail struct {
	start  int64  // of the last valid batch; 0 if there is none
	before uint32 // CRC at start
	end    int64  // of the last valid batch
	chain  uint32 // CRC at end
	number uint64 // of the next batch
	// reason is the error in the batch at end, begun is set if a batch was begun there.
	reason string
	begun  bool
}

// at returns n bytes of the file from offset, which must be in the file. They are valid
// until the next call.
func (c *scan) at(offset, n int64) ([]byte, error) {
	if offset < c.start || offset+n > c.start+int64(len(c.buf)) {
		want := min(max(n, windowSize), c.size-offset)
		if want > int64(cap(c.buf)) {
			c.buf = make([]byte, want)
		}
		c.buf, c.start = c.buf[:want], offset
		if got, err := c.file.ReadAt(c.buf, offset); got < int(want) {
			c.buf = c.buf[:0]
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return c.buf[offset-c.start:][:n], nil
}

// segment replays the batches of s up to limit, or until one is not valid.
func (c *scan) segment(s *segment, limit int64) (tail, error) {
	c.file, c.size, c.buf, c.start = s.file, int64(s.size), c.buf[:0], 0
	t := tail{end: headerSize, chain: s.crc, number: s.firstBatch}
	for t.end < limit {
		next, err := c.batch(s, t, limit)
		if err != nil || next.reason != "" {
			return next, err
		}
		t = next
	}
	return t, nil
}

// batch replays the batch at t.end and returns what follows it.
func (c *scan) batch(s *segment, t tail, limit int64) (tail, error) {
	if limit-t.end < batchHeader {
		t.reason = "there is no room for a batch"
		return t, nil
	}
	b, err := c.at(t.end, batchHeader)
	if err != nil {
		return t, fmt.Errorf("raftwal: read %s at %d: %w", s.name, t.end, err)
	}
	p, reason := parseBatchHeader(b, s.nonce, uint64(t.end), t.chain)
	t.begun = le.Uint64(b[batchMark:]) == mark(s.nonce, uint64(t.end))
	if reason == "" && p.length > limit-t.end {
		reason = "a batch does not fit into its segment"
	}
	if reason != "" {
		t.reason = reason
		return t, nil
	}
	if p.number != t.number {
		return t, s.corrupt(t.end, "batch %d is in the place of batch %d", p.number, t.number)
	}
	b, err = c.at(t.end, p.length)
	if err != nil {
		return t, fmt.Errorf("raftwal: read %s at %d: %w", s.name, t.end, err)
	}
	if _, t.reason = c.parse(b[batchHeader:], p.crc); t.reason != "" {
		return t, nil
	}
	if len(c.records) != int(p.count) {
		return t, s.corrupt(t.end, "a batch has %d records, not %d", len(c.records), p.count)
	}
	return c.apply(s, t, p)
}

// parse reads all records of a batch. It returns the CRC of the last one.
func (c *scan) parse(b []byte, chain uint32) (last uint32, reason string) {
	c.records = c.records[:0]
	for len(b) > 0 {
		r, reason := parseRecord(b, chain)
		if reason != "" {
			return chain, reason
		}
		c.records = append(c.records, r)
		b, chain = b[r.size:], r.crc
	}
	return chain, ""
}

// apply replays the records of a whole batch. Their CRCs are right, so an invalid record is
// damage that no crash causes.
func (c *scan) apply(s *segment, t tail, p parsedBatch) (tail, error) {
	offset, chain := t.end+batchHeader, p.crc
	for i := range c.records {
		r := &c.records[i]
		if c.visit != nil {
			if err := c.visit(s, offset, p.number, r); err != nil {
				return t, err
			}
		}
		if reason := c.view.replay(r, place{segment: uint32(s.id), offset: uint32(offset)}); reason != "" {
			return t, s.corrupt(offset, "%s", reason)
		}
		if r.kind == recordEntry {
			c.report.Entries++
		}
		offset, chain = offset+int64(r.size), r.crc
	}
	c.report.Batches++
	c.report.Bytes += p.length
	return tail{start: t.end, before: t.chain, end: offset, chain: chain, number: t.number + 1}, nil
}

// laterBatch looks for a batch that begins beyond offset and returns where.
func (c *scan) laterBatch(s *segment, offset int64) (at int64, found bool, err error) {
	const step = windowSize / 2
	for o := offset + 8; o+batchHeader <= c.size; {
		n := min(step, c.size-o)
		b, err := c.at(o, n)
		if err != nil {
			return 0, false, fmt.Errorf("raftwal: read %s at %d: %w", s.name, o, err)
		}
		for i := int64(0); i+batchHeader <= n; i += 8 {
			if le.Uint64(b[i+batchMark:]) == mark(s.nonce, uint64(o+i)) {
				return o + i, true, nil
			}
		}
		o += n - n%8 - batchHeader + 8
	}
	return 0, false, nil
}
