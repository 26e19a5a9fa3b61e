package raftwal

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// hardState is a raft HardState as a value. The zero value is an empty one.
type hardState struct{ term, vote, commit uint64 }

func hardOf(h *raftpb.HardState) hardState {
	return hardState{term: h.GetTerm(), vote: h.GetVote(), commit: h.GetCommit()}
}

func (h hardState) proto() *raftpb.HardState {
	return &raftpb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}
}

// cover raises the commit index to that of a snapshot, unless h is empty.
func (h *hardState) cover(snap uint64) {
	if *h != (hardState{}) {
		h.commit = max(h.commit, snap)
	}
}

// view is the state of the log that its records lead to: what a reader sees.
type view struct {
	hard    hardState
	snap    *raftpb.Snapshot // never nil; nobody changes it
	promise time.Duration

	// base is the last entry that is compacted, or that a snapshot replaced.
	base entryID
	// slots are the entries from index first on. Only while the segments are
	// read may first be above base+1: what is between was in segments that are
	// gone, and a later record has to say that it may be.
	first uint64
	slots slots
	// recent holds a suffix of the entries.
	recent recent
}

func newView(nextIndex uint64, maxRecent int64) view {
	return view{
		snap:   raftpb.EnsureSnapshot(nil),
		first:  nextIndex,
		recent: recent{limit: maxRecent},
	}
}

func (v *view) last() uint64 { return v.first + uint64(v.slots.len()) - 1 }

// put adds the entry id, which ends the log: entries from its index on, of a
// leader that lost, are gone. It must be above base and at most last+1.
func (v *view) put(id entryID, at place) {
	if id.index < v.first {
		v.first = id.index
		v.slots.truncate(0)
	}
	if n := id.index - v.first; n < uint64(v.slots.len()) {
		v.slots.truncate(n)
	}
	v.slots.push(slot{place: at, term: id.term})
}

// install replaces the log by a snapshot.
func (v *view) install(snap *raftpb.Snapshot) {
	v.snap = snap
	v.base = entryID{term: snap.GetMetadata().GetTerm(), index: snap.GetMetadata().GetIndex()}
	v.first = v.base.index + 1
	v.slots.truncate(0)
	v.recent.clear()
}

// compact forgets the entries up to base, of which the last is not forgotten.
func (v *view) compact(base entryID) {
	v.base = base
	if base.index < v.first {
		return
	}
	v.slots.drop(base.index + 1 - v.first)
	v.first = base.index + 1
	v.recent.forget(base.index)
}

// term is raft.Storage's Term.
func (v *view) term(i uint64) (uint64, error) {
	switch {
	case i < v.base.index:
		return 0, raft.ErrCompacted
	case i == v.base.index:
		return v.base.term, nil
	case i > v.last():
		return 0, raft.ErrUnavailable
	default:
		return v.slots.at(i - v.first).term, nil
	}
}
