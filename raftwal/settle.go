package raftwal

import (
	"fmt"

	"github.com/leaderlease/go/raftwal/fs"
)

// settle makes durable what Open has read: a process that has ended, or whose
// sync has failed, between a write or a rename and the sync leaves it in memory
// only. Nothing may build on that. The last batch is written again because a
// sync that has failed is not made up for by another one.
func (l *Log) settle() error {
	s, t := l.w.seg, &l.w.tail
	if t.start >= int64(s.sealed) {
		b := make([]byte, t.end-t.start)
		if _, err := s.file.ReadAt(b, t.start); err != nil {
			return fmt.Errorf("raftwal: read the last batch of %s: %w", s.name, err)
		}
		// Bytes that memory or the disk has changed in between must not take the
		// place of those that were acknowledged.
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

// differs says in what way b is not the batch that t was read from.
func (t *tail) differs(b []byte, nonce uint64) (reason string) {
	p, reason := parseBatchHeader(b, nonce, uint64(t.start), t.before)
	if reason != "" {
		return reason
	}
	chain := p.crc
	for b = b[batchHeader:]; len(b) > 0; {
		r, reason := parseRecord(b, chain)
		if reason != "" {
			return reason
		}
		b, chain = b[r.size:], r.crc
	}
	if chain != t.chain {
		return "it is another batch"
	}
	return ""
}

// cut removes what is left of an interrupted batch, durably, so that it is
// found once and never again taken for one.
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

// noSpace gives the error of a full disk its type. Where a file system does not
// overwrite in place, writing again what is there needs room, too.
func noSpace(err error) error {
	if fs.IsNoSpace(err) {
		return &NoSpaceError{Cause: err}
	}
	return err
}
