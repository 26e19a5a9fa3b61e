package store

import (
	"slices"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// state is all that entries have made. Restore replaces it as a whole.
type state struct {
	index   *index
	history *history
	leases  *leases

	// revision is what readers see. It is published last, after all versions
	// that belong to it.
	revision atomic.Int64
	// compacted is the newest compacted revision, -1 before the first
	// compaction. It is published before anything is freed.
	compacted atomic.Int64
	// applied is published after revision: who has seen an index sees its effect.
	applied atomic.Uint64

	format  atomic.Int64
	members atomic.Pointer[Members]
	alarms  atomic.Pointer[[]*pb.AlarmMember] // sorted

	// Under the store's apply lock:

	term    uint64
	conf    *raftpb.ConfState // replaced, never changed
	changes []*version        // of the command being applied
	unsaved unsaved
	tried   int64 // the newest revision that a checkpoint, even a failed one, was to have
	garbage garbage

	// growth is what the next checkpoint will add, see Store.Unsaved.
	growth atomic.Int64
}

// unsaved is how the state differs from the newest checkpoint.
type unsaved struct {
	versions []*version // in the order of revisions
	trimmed  []*version // in the checkpoint, and freed since
	leases   map[int64]TTLLease
}

func newState() *state {
	st := &state{index: newIndex(), history: newHistory(), leases: newLeases()}
	st.format.Store(FormatFirst)
	st.revision.Store(1)
	st.compacted.Store(-1)
	st.members.Store(&Members{ByID: map[uint64]Member{}, Removed: map[uint64]bool{}})
	st.alarms.Store(&[]*pb.AlarmMember{})
	return st
}

// add puts back u, which was taken out before.
func (u *unsaved) add(older unsaved) {
	u.versions = slices.Concat(older.versions, u.versions)
	u.trimmed = slices.Concat(older.trimmed, u.trimmed)
	u.addLeases(older.leases)
}

func (st *state) view() view { return view{st, st.revision.Load()} }

// view is a state as of one revision.
type view struct {
	st  *state
	rev int64
}

// compacted reports whether versions that the view needs may be gone.
func (w view) compacted() bool { return w.st.compacted.Load() > w.rev }

// find returns the live version of key, nil if there is none.
func (w view) find(key []byte) *version {
	c := w.st.index.find(key)
	if c == nil {
		return nil
	}
	return c.at(w.rev).live()
}
