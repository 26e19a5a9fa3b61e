package store

import (
	"context"
	"runtime"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// trimStep is how many versions of the garbage are handled under one lock. It delays Apply by some tens of
// microseconds.
const trimStep = 128

// garbage lists, in the order of revisions, the versions at which a compaction frees something.
type garbage struct {
	// newer holds versions that replaced another one, and tombstones. A compaction at or above
	// their revision frees the replaced version, and one above it the tombstone.
	newer queue
	// held holds versions of the compacted revision itself that are tombstones, or that
	// replaced a version of the same revision. A watch may start at that revision and needs
	// them, so the next compaction frees them.
	held queue
}

func (g *garbage) add(v *Version) {
	if v.tombstone() || v.prev.Load() != nil {
		g.newer.push(v)
	}
}

// queue is a FIFO list of versions.
type queue struct {
	list []*Version
	head int
}

func (q *queue) push(v *Version) { q.list = append(q.list, v) }

// peek returns the first version, nil if the queue is empty.
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

// compactLocked makes the history up to a revision unreachable at once, and starts freeing it. The
// response does not wait for the freeing, even if r.Physical is set: etcdapi then calls
// FinishCompaction.
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

// startTrimLocked starts the goroutine that frees compacted versions, unless it is running.
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

// trim frees some versions and reports whether there are more. It takes and releases saving and mu
// for each step, so a compaction of millions of versions delays an entry, or a checkpoint, by one
// step.
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

// trim handles up to n versions of the garbage, and notes freed ones that a checkpoint may contain. It
// reports whether there may be more.
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

// free frees the version before v, and v itself if it is a tombstone and the newest version of its
// key.
//
// Versions written at the compacted revision stay, because watches may start there. That includes a
// version below another one of the same revision: a transaction can delete a range and then put a
// key of it. A tombstone below a newer version is freed when the compaction reaches that version;
// readers see no difference.
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

// drop removes v from the durable state. If v is in a sealed increment, a later increment deletes
// it, even if neither is committed yet: the checkpoint of the first one may be older than the
// compaction, and must contain v.
func (st *state) drop(v *Version) {
	if v.mod <= st.sealedRevision {
		st.unsealed.deletions = append(st.unsealed.deletions, recordOf(v))
		return
	}
	if st.unsealed.omitted == nil {
		st.unsealed.omitted = make(map[*Version]struct{})
	}
	st.unsealed.omitted[v] = struct{}{}
}

// FinishCompaction frees all compacted versions now. The next checkpoint deletes them, and a
// defragmentation can then release their space. Reads and Apply continue meanwhile.
func (s *Store) FinishCompaction(ctx context.Context) error {
	for s.trim() {
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
