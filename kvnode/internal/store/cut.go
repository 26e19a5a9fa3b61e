package store

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// What one commit of a checkpoint writes and deletes, about. More: the log waits for the
// disk while it does, and with it every client. Less: more of the same pages are written
// again and again, and each commit waits for the disk twice.
const cutBytes = 4 << 20

// What the record of a TTL lease counts for in that, and a version that is deleted.
const (
	leaseCost  = 64
	deleteCost = 32
)

// cut is how the checkpoint of one index differs from the cut before, or from what is
// durable. Cuts are committed one by one, in their order. So each commit leaves a whole
// checkpoint, of an index that this member was at, whatever comes of those after it. A cut
// never changes: what is freed later is deleted by a later one, since its own checkpoint
// may be of a time before the compaction.
type cut struct {
	meta // but for ConfState, Records and Sum
	conf *raftpb.ConfState
	unsaved
}

// cutNow makes a cut of what is unsaved. The caller holds the apply lock, and what it has
// applied is published. It hands the lists over and copies none, so that the lock is held for the
// registry and some numbers, however much is unsaved.
func (st *state) cutNow() {
	m := st.capture()
	st.cuts = append(st.cuts, &cut{meta: m, conf: st.conf, unsaved: st.unsaved})
	st.unsaved = unsaved{}
	st.cutIndex, st.cutRevision = m.Index, m.Revision
}

// cutIfLarge makes a cut if there is enough for one commit, under the conditions of cutNow.
func (st *state) cutIfLarge(most int64) {
	u := &st.unsaved
	if u.bytes+int64(len(u.leases))*leaseCost+int64(len(u.trimmed))*deleteCost >= most {
		st.cutNow()
	}
}

// differs reports whether there is anything that no cut has. Before the first cut it is so even of
// an empty state.
func (st *state) differs() bool {
	u := &st.unsaved
	return len(u.versions)+len(u.trimmed)+len(u.leases) > 0 || st.cutIndex != st.applied.Load() || st.cutIndex == 0
}

// commit makes c durable, which is the first of st. The caller holds saving, so st is the state
// until it is released: Restore waits for it.
//
// A cut that was not committed stays the first one, and the next checkpoint begins with it. Cuts
// are never skipped: each has only what the one before it lacks.
func (s *Store) commit(st *state, c *cut) error {
	m := c.meta
	if c.conf != nil {
		var err error
		if m.ConfState, err = proto.Marshal(c.conf); err != nil {
			return fmt.Errorf("encode configuration: %w", err)
		}
	}
	in := takeSlab()
	err := s.update(func(tx Tx) error { return saveTx(tx, &m, &c.unsaved, in) })
	in.release()
	if err != nil {
		return err
	}
	// Not before the backend has it on disk: the log forgets what Durable says is kept here.
	s.durable.Store(&Checkpoint{Index: c.Index, Term: c.Term, ConfState: c.conf, Revision: c.Revision})
	st.growth.Add(-c.bytes)
	s.mu.Lock() // whoever applies may be adding a cut
	defer s.mu.Unlock()
	st.cuts[0] = nil // its versions may be garbage
	st.cuts = st.cuts[1:]
	return nil
}
