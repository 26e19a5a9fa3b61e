package store

import (
	"context"
	"runtime"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// trimStep is how many versions are freed at a time while Apply waits: some
// tens of microseconds.
const trimStep = 128

// garbage lists what compactions will free, in the order of revisions.
type garbage struct {
	// newer holds versions that have one before them, or that are tombstones: a
	// compaction at or above their revision frees the former, and the latter.
	newer queue
	// held holds versions of the compacted revision itself that are tombstones, or
	// that follow another version of the same revision. A watch may still start at
	// that revision and needs them, so the next compaction frees them.
	held queue
}

func (g *garbage) add(v *Version) {
	if v.tombstone() || v.prev.Load() != nil {
		g.newer.push(v)
	}
}

// queue is a first-in first-out list of versions.
type queue struct {
	list []*Version
	head int
}

func (q *queue) push(v *Version) { q.list = append(q.list, v) }

// peek returns the first, nil if there is none.
func (q *queue) peek() *Version {
	if q.head == len(q.list) {
		return nil
	}
	return q.list[q.head]
}

func (q *queue) pop() {
	q.list[q.head] = nil
	q.head++
	if q.head >= 1024 && q.head*2 >= len(q.list) {
		q.list = append([]*Version(nil), q.list[q.head:]...)
		q.head = 0
	}
}

// compactLocked makes the history up to a revision unreachable, at once, and has
// it freed later. That is no part of the response: a request that asks for the
// physical compaction too is answered at the same moment, and what etcd lets it
// be waited for, a hash that no longer changes, holds at once here.
func (s *Store) compactLocked(st *state, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	rev := st.revision.Load()
	switch {
	case r.GetRevision() <= st.compacted.Load():
		return nil, rpctypes.ErrGRPCCompacted
	case r.GetRevision() > rev:
		return nil, rpctypes.ErrGRPCFutureRev
	}
	st.compacted.Store(r.GetRevision())
	st.history.truncate(r.GetRevision())
	s.startTrimLocked()
	return &pb.CompactionResponse{Header: &pb.ResponseHeader{Revision: rev}}, nil
}

// startTrimLocked starts a goroutine that frees what is compacted and ends, if
// there is none. There is no other goroutine in a store.
func (s *Store) startTrimLocked() {
	if s.mu.trimming || s.mu.closed {
		return
	}
	s.mu.trimming = true
	s.trimmer.Go(func() {
		for s.trim() {
			runtime.Gosched()
		}
	})
}

// trim frees a few versions and reports whether there is more to do. It takes the locks in the
// order of Checkpoint, saving first, and gives both back after each step: a compaction of
// millions of versions holds up an entry, or a checkpoint, for trimStep of them.
func (s *Store) trim() bool {
	s.saving.acquire()
	defer s.saving.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.trimming = !s.mu.closed; s.mu.trimming {
		st := s.state.Load()
		s.mu.trimming = st.trim(trimStep)
		st.sealIfLarge(s.commitBytes)
	}
	return s.mu.trimming
}

// trim frees up to n versions, and notes those that a checkpoint may hold. It reports
// whether there may be more.
func (st *state) trim(n int) bool {
	target := st.compacted.Load()
	for ; n > 0; n-- {
		from := &st.garbage.held
		v := from.peek()
		if v == nil || v.mod == target {
			from = &st.garbage.newer
			v = from.peek()
		}
		if v == nil || v.mod > target {
			return false
		}
		from.pop()
		st.free(v, target)
	}
	return true
}

// free frees the version before v, and v itself if it is a tombstone and the last of its
// chain. Whatever was written at the compacted revision stays for watches that start
// there, also a version below another one of that revision: one transaction can delete a
// range of keys and put one of them. A tombstone below a newer version goes when that
// version is freed; readers see no difference.
func (st *state) free(v *Version, target int64) {
	prev := v.prev.Load()
	if prev != nil && prev.mod == target {
		st.garbage.held.push(v)
		return
	}
	if prev != nil {
		v.prev.Store(nil)
		st.drop(prev)
	}
	switch {
	case !v.tombstone():
	case v.mod == target:
		st.garbage.held.push(v)
	default:
		if v.of.head.Load() == v {
			st.index.remove(v.of)
			st.drop(v)
		}
	}
}

// drop takes v out of what is to be durable. If a cut has it already, a later one deletes
// it there, even if nothing has been committed yet: the cut's own checkpoint is of a time
// before the compaction, at which v can be read.
func (st *state) drop(v *Version) {
	if v.mod <= st.sealedRevision {
		st.unsaved.trimmed = append(st.unsaved.trimmed, recordOf(v))
		return
	}
	if st.unsaved.dropped == nil {
		st.unsaved.dropped = make(map[*Version]struct{})
	}
	st.unsaved.dropped[v] = struct{}{}
}

// FinishCompaction frees at once what compactions have made unreachable, instead
// of a little at a time: the next checkpoint then lets go of it, and a
// defragmentation can give the space back. Reads and Apply go on meanwhile.
func (s *Store) FinishCompaction(ctx context.Context) error {
	for s.trim() {
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
