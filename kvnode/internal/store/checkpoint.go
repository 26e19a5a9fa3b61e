package store

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Checkpoint describes a durable state.
type Checkpoint struct {
	// Index is that of the newest entry in it, Term that entry's. The log may forget
	// entries up to Index.
	Index, Term uint64
	// ConfState is shared and must not be changed. It is nil before the first
	// configuration change.
	ConfState *raftpb.ConfState
	Revision  int64
}

// Snapshot returns what a log keeps of the checkpoint: all but the state.
func (c Checkpoint) Snapshot() *raftpb.Snapshot {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(c.Index), Term: new(c.Term), ConfState: c.ConfState,
	}}
}

// Durable returns the newest checkpoint.
func (s *Store) Durable() Checkpoint { return *s.durable.Load() }

// Checkpoint makes the state as of now durable, and returns when it is: in several
// commits if there is much that is not, each of which is a checkpoint of an earlier index.
// It calls before with the index it is about to make durable: the log must know it to be
// committed first (see raftwal, Applied index), or a checkpoint would be beyond the log
// after a crash, and the member could not start. Applying and reading go on
// meanwhile, but Restore waits, so before must not wait for the applier. Safe for
// concurrent use; checkpoints are made one after another.
//
// What it costs is proportional to what has changed since the last one, and not to the
// size of the store: records of versions that have not changed are not touched.
//
// If it fails, Durable is the newest commit, the state in memory is unharmed, and
// the next checkpoint begins with what this one has left.
func (s *Store) Checkpoint(before func(index uint64) error) (Checkpoint, error) {
	// saving is taken before mu, here as in Restore and in the trimmer, and never the other
	// way round: so who holds mu, without which nothing is applied, waits for no disk.
	s.saving.acquire()
	defer s.saving.release()

	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return Checkpoint{}, ErrClosed
	}
	// Under the apply lock only what the checkpoint is to have is noted. It is written
	// without the lock, which is sound since versions do not change any more. What has
	// been written since it was noted has no part in it.
	st := s.state.Load()
	if st.differs() {
		st.seal()
	}
	index, increments := st.sealedIndex, st.increments
	s.mu.Unlock()

	// Once, with the newest index: it covers the older cuts. A crash between this and the commits
	// leaves a log that knows more to be committed than the store has, which is applied again.
	var err error
	if before != nil {
		err = before(index)
	}
	for _, c := range increments {
		if err == nil {
			err = s.commit(st, c)
		}
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("store: checkpoint at index %d: %w", index, err)
	}
	return s.Durable(), nil
}

// update changes the backend. What an update that failed has left is made durable
// first: this one begins with it, and writes over what was durable before. Without that a
// crash could leave neither the old checkpoint nor the new one. The caller holds
// saving.
func (s *Store) update(fn func(tx Tx) error) error {
	if s.unsettled {
		if err := s.backend.Settle(); err != nil {
			return err
		}
	}
	err := s.backend.Update(fn)
	s.unsettled = err != nil
	return err
}

// saveTx writes a checkpoint. The transaction may begin where an earlier one
// that failed got to after all, so it counts what it finds. It looks for no version
// that is newer than what it begins with, which would cost a fifth of the time.
//
// What is written is in the slab, which the transaction uses until it has ended.
//
// The meta record goes last and in the same transaction. It has the number of records and
// the sum of their checksums, by which load notices one that is missing or too many.
func saveTx(tx Tx, m *meta, dirty *unsaved, in *slab) error {
	was, err := decodeMeta(tx.Meta())
	if err != nil {
		return err
	}
	// From what is in the file, not from what this process has last written: the two differ
	// if an update failed and was settled after all.
	m.Records, m.Sum = was.Records, was.Sum
	// forget takes a record that is deleted or replaced out of the count and the sum.
	uncount := func(old []byte) {
		if len(old) >= recordHead {
			m.Records--
			m.Sum -= uint64(binary.BigEndian.Uint32(old))
		}
	}
	for _, at := range dirty.trimmed {
		key := at.key(in)
		uncount(tx.Record(key)) // it may be gone already, by an attempt that failed late
		if err := tx.DeleteRecord(key); err != nil {
			return fmt.Errorf("delete revision %d.%d: %w", at.main, at.sub, err)
		}
	}
	for _, v := range dirty.versions {
		if _, dropped := dirty.dropped[v]; dropped {
			continue
		}
		key := recordOf(v).key(in)
		value := recordValue(in, key, v)
		// Only what is not newer than the file's revision can be in it.
		if v.mod <= was.Revision {
			uncount(tx.Record(key))
		}
		if err := tx.SetRecord(key, value); err != nil {
			return fmt.Errorf("write revision %d.%d: %w", v.mod, v.sub, err)
		}
		m.Records++
		m.Sum += uint64(binary.BigEndian.Uint32(value))
	}
	if err := saveLeases(tx, m, dirty.leases, uncount); err != nil {
		return err
	}
	return m.save(tx)
}

// What one commit of a checkpoint writes and deletes, about. More: the log waits for the
// disk while it does, and with it every client. Less: more of the same pages are written
// again and again, and each commit waits for the disk twice.
const commitBytes = 4 << 20

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
type increment struct {
	meta // but for ConfState, Records and Sum
	conf *raftpb.ConfState
	unsaved
}

// seal makes a cut of what is unsaved. The caller holds the apply lock, and what it has
// applied is published. It hands the lists over and copies none, so that the lock is held for the
// registry and some numbers, however much is unsaved.
func (st *state) seal() {
	m := st.capture()
	st.increments = append(st.increments, &increment{meta: m, conf: st.conf, unsaved: st.unsaved})
	st.unsaved = unsaved{}
	st.sealedIndex, st.sealedRevision = m.Index, m.Revision
}

// sealIfLarge makes a cut if there is enough for one commit, under the conditions of seal.
func (st *state) sealIfLarge(most int64) {
	u := &st.unsaved
	if u.bytes+int64(len(u.leases))*leaseCost+int64(len(u.trimmed))*deleteCost >= most {
		st.seal()
	}
}

// differs reports whether there is anything that no cut has. Before the first cut it is so even of
// an empty state.
func (st *state) differs() bool {
	u := &st.unsaved
	return len(u.versions)+len(u.trimmed)+len(u.leases) > 0 || st.sealedIndex != st.applied.Load() || st.sealedIndex == 0
}

// commit makes c durable, which is the first of st. The caller holds saving, so st is the state
// until it is released: Restore waits for it.
//
// A cut that was not committed stays the first one, and the next checkpoint begins with it. Cuts
// are never skipped: each has only what the one before it lacks.
func (s *Store) commit(st *state, c *increment) error {
	m := c.meta
	if c.conf != nil {
		var err error
		if m.ConfState, err = proto.Marshal(c.conf); err != nil {
			return fmt.Errorf("encode configuration: %w", err)
		}
	}
	in := getSlab()
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
	st.increments[0] = nil // its versions may be garbage
	st.increments = st.increments[1:]
	return nil
}
