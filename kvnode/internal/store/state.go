package store

import (
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// state holds everything that entries have made: keys with their versions, TTL leases, members and
// alarms. It is a function of the applied entries, so members that applied the same entries hold
// the same state. Restore replaces it as a whole; a reader that has loaded the old state continues
// with it.
//
// One goroutine at a time writes, under the apply lock, which readers do not take. A command
// publishes its versions first, then the revision, then the applied index. Readers load in the
// reverse order, so they find everything that belongs to the index or revision that they have seen.
type state struct {
	// index finds the chain of a key. history lists versions by revision.
	index   *index
	history *history
	// leases holds the TTL leases and their keys.
	leases *leases

	// revision is the newest visible revision. It is published after all of its versions.
	revision atomic.Int64
	// compacted is the newest compacted revision, -1 before the first compaction. It is
	// published before any version is freed.
	compacted atomic.Int64
	// applied is published after revision: a reader that sees an index sees its effect.
	applied atomic.Uint64

	// clusterVersion decides how entries are applied. It never decreases. Since entries change it, all
	// members apply each entry under the same cluster version.
	clusterVersion atomic.Int64
	// members and alarms are replaced, never changed, so readers may keep them.
	members atomic.Pointer[Members]
	alarms  atomic.Pointer[[]*pb.AlarmMember] // sorted

	// Under the store's apply lock:

	// term and conf belong to the newest applied entry. Checkpoints store them.
	term uint64
	conf *raftpb.ConfState // replaced, never changed
	// scratch is the memory of transaction.changes, reused by the next command.
	scratch []*Version
	// unsealed is the difference between the state and the newest increment. increments are
	// sealed and wait for their commit, oldest first.
	unsealed   changes
	increments []*increment
	// sealedIndex and sealedRevision are those of the newest increment, or of the checkpoint
	// that was loaded. Versions up to that revision are in the database or in increments.
	sealedIndex    uint64
	sealedRevision int64
	garbage        garbage

	// growth is the value of Store.UnsavedBytes.
	growth atomic.Int64
}

// changes holds the changes for the next increment.
type changes struct {
	versions  []*Version // in the order of revisions
	bytes     int64      // cost of versions
	deletions []recordID // of versions in earlier increments that were freed since
	// omitted holds the versions that were freed before they were sealed. They are not written.
	omitted map[*Version]struct{}
	// leases holds the TTL leases that were granted, checkpointed or revoked.
	leases map[int64]TTLLease
}

func newState() *state {
	st := &state{index: newIndex(), history: newHistory(), leases: newLeases()}
	st.clusterVersion.Store(ClusterVersionFirst)
	st.revision.Store(1)
	st.compacted.Store(-1)
	st.members.Store(&Members{ByID: map[uint64]Member{}, Removed: map[uint64]bool{}})
	st.alarms.Store(&[]*pb.AlarmMember{})
	return st
}

func (st *state) view() view { return view{st, st.revision.Load()} }

// view is the state at one revision. Later writes are invisible.
type view struct {
	st  *state
	rev int64
}

// compacted reports whether versions that the view needs may have been freed. Call it after
// reading: a compaction is published before anything is freed, so a reader that sees no compaction
// afterwards has missed nothing.
func (w view) compacted() bool { return w.st.compacted.Load() > w.rev }

// find returns the live version of key, nil if there is none.
func (w view) find(key []byte) *Version {
	c := w.st.index.find(key)
	if c == nil {
		return nil
	}
	return c.at(w.rev).live()
}
