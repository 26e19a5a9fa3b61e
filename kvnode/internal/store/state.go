package store

import (
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// state is all that entries have made: keys with their versions, TTL leases, members,
// alarms. It is a function of the entries applied, so two members that have applied up
// to the same index hold the same. Restore replaces it as a whole: a reader that has
// loaded a state before goes on with that one.
//
// One goroutine at a time writes, with the apply lock; any goroutine reads, without a
// lock. That is sound because a command publishes in this order: its versions, the
// revision, the applied index. A reader looks at the applied index first, then at the
// revision, then at versions, and so finds everything that belongs to what it has seen.
type state struct {
	// index finds a key's chain of versions, history lists versions by revision.
	index   *index
	history *history
	// leases are the TTL leases, with the keys attached to them.
	leases *leases

	// revision is what readers see. It is published last, after all versions
	// that belong to it.
	revision atomic.Int64
	// compacted is the newest compacted revision, -1 before the first
	// compaction. It is published before anything is freed.
	compacted atomic.Int64
	// applied is published after revision: who has seen an index sees its effect.
	applied atomic.Uint64

	// format says by which rules entries are applied. It never sinks: an entry means the
	// same on each member, whenever that applies it.
	format atomic.Int64
	// members and alarms are replaced, never changed, so readers may keep them.
	members atomic.Pointer[Members]
	alarms  atomic.Pointer[[]*pb.AlarmMember] // sorted

	// Under the store's apply lock:

	// term and conf are those of the newest entry applied, as a checkpoint keeps them.
	term uint64
	conf *raftpb.ConfState // replaced, never changed
	// changes is the memory of a writer's list, kept for the next command.
	scratch []*Version
	// unsaved is how the state differs from the newest cut, and cuts how that differs
	// from what is durable.
	unsaved    unsaved
	increments []*increment
	// sealedIndex and sealedRevision are those of the newest cut, or of the checkpoint with which
	// the state began: versions up to that revision are durable, or will be, or, after a
	// commit that failed, may be.
	sealedIndex    uint64
	sealedRevision int64
	garbage        garbage

	// growth is what the next checkpoint will add, see Store.Unsaved.
	growth atomic.Int64
}

// unsaved is what a commit writes, so that its cost is that of the writes since the one
// before, not that of the state.
type unsaved struct {
	versions []*Version // written since, in the order of revisions
	bytes    int64      // what they cost
	trimmed  []recordID // in a cut or a checkpoint before, and freed since: to be deleted
	// dropped are those of versions that the trimmer freed before a cut had them. Trimmer and
	// checkpoints exclude each other.
	dropped map[*Version]struct{}
	// leases are the TTL leases that were granted, checkpointed or revoked since.
	leases map[int64]TTLLease
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

func (st *state) view() view { return view{st, st.revision.Load()} }

// view is a state as of one revision: what is written later it does not show.
type view struct {
	st  *state
	rev int64
}

// compacted reports whether versions that the view needs may be gone. Ask it after
// reading: a compaction is published before anything is freed, so whoever has read first
// and sees none then has missed nothing.
func (w view) compacted() bool { return w.st.compacted.Load() > w.rev }

// find returns the live version of key, nil if there is none.
func (w view) find(key []byte) *Version {
	c := w.st.index.find(key)
	if c == nil {
		return nil
	}
	return c.at(w.rev).live()
}
