package store

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Checkpoint describes a durable state.
type Checkpoint struct {
	// Index and Term are those of the newest entry in the checkpoint. The log may drop entries
	// up to Index.
	Index, Term uint64
	// ConfState is shared and must not be changed. It is nil before the first configuration
	// change.
	ConfState *raftpb.ConfState
	Revision  int64
}

// Snapshot returns the metadata of the checkpoint as a raft snapshot without data.
func (c Checkpoint) Snapshot() *raftpb.Snapshot {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(c.Index), Term: new(c.Term), ConfState: c.ConfState,
	}}
}

// Durable returns the newest checkpoint.
func (s *Store) Durable() Checkpoint { return *s.durable.Load() }

// SaveCheckpoint makes the current state durable and returns when it is. It makes one commit for each
// sealed increment, and each commit is a checkpoint of its index. Writes and reads continue
// meanwhile.
//
// before is called with the index that is about to become durable. The log must have recorded that
// this index is committed (see raftwal.Log.SaveCommit). Otherwise a crash could leave a checkpoint
// beyond the log's commit index, and the member could not start. Restore waits for a running
// SaveCheckpoint, so before must not wait for the applying goroutine.
//
// The cost is proportional to the changes since the last checkpoint, not to the size of the store.
// SaveCheckpoint is safe for concurrent use; calls run one after another.
//
// If it fails, Durable returns the last commit that succeeded, the state in memory is intact, and
// the next SaveCheckpoint continues with the remaining increments.
func (s *Store) SaveCheckpoint(before func(index uint64) error) (Checkpoint, error) {
	// saving comes before mu, here and everywhere: a goroutine that holds mu must not wait for the disk.
	s.saving.acquire()
	defer s.saving.release()

	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return Checkpoint{}, ErrClosed
	}
	// Under the apply lock the changes are only sealed. They are written without it, which is
	// safe because versions are immutable. Later writes belong to the next checkpoint.
	st := s.state.Load()
	if st.differs() {
		st.seal()
	}
	index, increments := st.sealedIndex, st.increments
	s.mu.Unlock()

	// One call with the newest index covers all increments. After a crash between this call and
	// the commits, the log's commit index is ahead of the store, and the entries are applied
	// again.
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

// update changes the backend. If the previous update failed, its outcome is made durable first.
// Otherwise this update would overwrite pages of the durable checkpoint, and a crash could leave
// neither the old checkpoint nor the new one. The caller holds saving.
func (s *Store) update(fn func(tx Tx) error) error {
	if s.updateFailed {
		if err := s.backend.EnsureDurable(); err != nil {
			return err
		}
	}
	err := s.backend.Update(fn)
	s.updateFailed = err != nil
	return err
}

// saveTx writes one increment. The transaction may start from the result of an earlier attempt that
// reported an error, so saveTx subtracts records that it replaces or deletes. Versions above the
// file's revision cannot be there; to look them up would take a fifth of the time.
//
// The records of versions are in the slab, which the backend uses until the transaction has ended.
//
// The meta value is written last, in the same transaction. It has the number of records and the sum
// of their checksums, so load detects missing and surplus records.
func saveTx(tx Tx, m *meta, dirty *changes, in *slab) error {
	was, err := decodeMeta(tx.Meta())
	if err != nil {
		return err
	}
	m.Records, m.Sum = was.Records, was.Sum
	// uncount subtracts a record that is deleted or replaced.
	uncount := func(old []byte) {
		if len(old) >= recordHead {
			m.Records--
			m.Sum -= uint64(binary.BigEndian.Uint32(old))
		}
	}
	for _, at := range dirty.deletions {
		key := at.key(in)
		uncount(tx.Record(key)) // an earlier attempt may have deleted it
		if err := tx.DeleteRecord(key); err != nil {
			return fmt.Errorf("delete revision %d.%d: %w", at.main, at.sub, err)
		}
	}
	for _, v := range dirty.versions {
		if _, omitted := dirty.omitted[v]; omitted {
			continue
		}
		key := recordOf(v).key(in)
		value := recordValue(in, key, v)
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

// commitBytes is the approximate size of one commit of a checkpoint. Larger commits keep the disk
// busy for longer, which delays log writes and all clients. Smaller ones rewrite the same pages
// more often, and each commit syncs twice.
const commitBytes = 4 << 20

// Approximate size of the record of a TTL lease, and of a deletion, in a commit.
const (
	leaseCost  = 64
	deleteCost = 32
)

// increment holds the changes since the increment before it or, if there is none, since the durable
// checkpoint. Increments are committed in order, so each commit leaves the complete state as of the
// increment's index. An increment never changes. If one of its versions is freed, a later increment
// deletes it, because the checkpoint of this one may be older than the compaction.
type increment struct {
	meta // without ConfState, Records and Sum
	conf *raftpb.ConfState
	changes
}

// seal moves the unsaved changes to a new increment. The caller holds the apply lock, and
// everything that it has applied is published. The lists are moved, not copied, so the lock is held
// briefly.
func (st *state) seal() {
	m := st.capture()
	st.increments = append(st.increments, &increment{meta: m, conf: st.conf, changes: st.unsealed})
	st.unsealed = changes{}
	st.sealedIndex, st.sealedRevision = m.Index, m.Revision
}

// sealIfLarge calls seal if the unsaved changes are about limit bytes or more.
func (st *state) sealIfLarge(limit int64) {
	u := &st.unsealed
	if u.bytes+int64(len(u.leases))*leaseCost+int64(len(u.deletions))*deleteCost >= limit {
		st.seal()
	}
}

// differs reports whether there are changes to seal. It is true for an empty state before the first
// checkpoint.
func (st *state) differs() bool {
	u := &st.unsealed
	return len(u.versions)+len(u.deletions)+len(u.leases) > 0 || st.sealedIndex != st.applied.Load() || st.sealedIndex == 0
}

// commit makes c, the first increment of st, durable. The caller holds saving, which Restore waits
// for, so st is still the state.
//
// If it fails, c stays first and the next SaveCheckpoint continues with it. No increment is skipped, as
// each one builds on the one before it.
func (s *Store) commit(st *state, c *increment) error {
	m := c.meta
	if c.conf != nil {
		var err error
		if m.ConfState, err = proto.Marshal(c.conf); err != nil {
			return fmt.Errorf("encode configuration: %w", err)
		}
	}
	in := getSlab()
	err := s.update(func(tx Tx) error { return saveTx(tx, &m, &c.changes, in) })
	in.release()
	if err != nil {
		return err
	}
	// Only now, since the log drops entries up to Durable.
	s.durable.Store(&Checkpoint{Index: c.Index, Term: c.Term, ConfState: c.conf, Revision: c.Revision})
	st.growth.Add(-c.bytes)
	s.mu.Lock() // the applying goroutine may add an increment
	defer s.mu.Unlock()
	st.increments[0] = nil // its versions may be garbage
	st.increments = st.increments[1:]
	return nil
}
