package raftwal

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal/fs"
)

// Verify reads the whole log and changes nothing. It returns ErrEmpty if there is none,
// and a CorruptError if the log is damaged. Like OpenReadOnly it takes no lock.
func Verify(cfg Config) (*Report, error) { return Dump(cfg, nil) }

// Record is one record of a log. The other fields are set according to Kind.
type Record struct {
	// File and Offset are its place, Batch is the number of its batch.
	File   string
	Offset int64
	Batch  uint64
	// Kind is the name of the record's type, such as "entry".
	Kind string

	Entry     *raftpb.Entry
	HardState *raftpb.HardState
	// Snapshot is set in records of a snapshot. It replaces the log if Install is set.
	Snapshot *raftpb.Snapshot
	Install  bool
	// Promise is set in records of the longest promise.
	Promise time.Duration
	// BaseTerm and BaseIndex are the last compacted entry.
	BaseTerm, BaseIndex uint64
}

// visitor is called for every record of every valid batch.
type visitor = func(s *segment, offset int64, number uint64, r *record) error

// Dump is Verify with a call of show for every record in order, also for entries that later
// ones replace. It returns the first error of show.
func Dump(cfg Config, show func(*Record) error) (*Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var visit visitor
	if show != nil {
		visit = func(s *segment, offset int64, number uint64, r *record) error {
			out, err := describe(r)
			if err != nil {
				return s.corrupt(offset, "%v", err)
			}
			out.File, out.Offset, out.Batch = s.name, offset, number
			return show(out)
		}
	}
	rec, _, err := readLog(cfg, visit)
	if err != nil {
		return nil, err
	}
	return &rec.report, closeAll(rec.segments)
}

// readLog recovers a log without changing it.
func readLog(cfg Config, visit visitor) (*recovered, fs.FS, error) {
	dir, err := cfg.directory(false)
	if err != nil {
		return nil, nil, fmt.Errorf("raftwal: open the directory: %w", err)
	}
	files, err := list(dir)
	if err != nil {
		return nil, nil, err
	}
	rec, err := recoverLog(dir.OpenRead, files, cfg.MaxRecentBytes, visit)
	return rec, dir, err
}

// describe decodes a record for Dump. The result shares no memory with it.
func describe(r *record) (*Record, error) {
	// Dump shows a record before replay has checked it.
	var v view
	out := &Record{Kind: kindName(r.kind)}
	switch r.kind {
	case recordEntry:
		if _, ok := parseEntryID(r); !ok {
			return nil, errWrongLength
		}
		own := *r
		own.payload = append([]byte(nil), r.payload...)
		out.Entry = decodeEntry(&own)
	case recordHard:
		if reason := v.replayHard(r); reason != "" {
			return nil, errWrongLength
		}
		out.HardState = v.hard.proto()
	case recordInstall, recordCheckpoint:
		snap, err := parseSnapshot(r)
		if err != nil {
			return nil, err
		}
		out.Snapshot, out.Install = snap, r.kind == recordInstall
	case recordBase:
		if len(r.payload) != basePayload {
			return nil, errWrongLength
		}
		out.BaseTerm, out.BaseIndex = le.Uint64(r.payload), le.Uint64(r.payload[8:])
	case recordPromise:
		if len(r.payload) != promisePayload {
			return nil, errWrongLength
		}
		out.Promise = time.Duration(le.Uint64(r.payload))
	}
	return out, nil
}
