package raftwal

import (
	"fmt"
	"math"
	"time"
)

// maxIndex leaves room to count beyond any index without overflow.
const maxIndex = math.MaxInt64

// replay does to the view what a record says. If the record cannot be right,
// reason says why.
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

// missing says which entries the segments should have held and did not.
func (v *view) missing() string {
	if v.first <= v.base.index+1 {
		return ""
	}
	return fmt.Sprintf("entries %d to %d are missing, with the segment that held them", v.base.index+1, v.first-1)
}
