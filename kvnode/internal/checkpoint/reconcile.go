package checkpoint

import (
	"errors"
	"fmt"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/raftwal"
)

// Reconcile makes log and store match again after a crash. If the store is older than the log's snapshot and the log
// still has the entries in between, it leaves both as they are. It is called once, before raft starts.
func (c *Checkpointer) Reconcile() error {
	snap, err := c.cfg.Log.Snapshot()
	if err != nil {
		return err
	}
	logged, durable := snap.GetMetadata().GetIndex(), c.cfg.Store.Durable()
	switch {
	case durable.Index > logged:
		// The crash came after Store.SaveCheckpoint and before Log.SaveSnapshot (save, truncate).
		if err := c.saveSnapshot(durable); err != nil {
			return fmt.Errorf("save the snapshot of store.db (index %d) in the log, which has one of index %d: %w", durable.Index, logged, err)
		}
	case durable.Index < logged:
		if err := c.advanceStore(durable, logged); err != nil {
			return err
		}
	}
	c.cfg.Received.RemoveUpTo(c.cfg.Store.Durable().Index)
	return nil
}

// saveSnapshot saves the store's checkpoint as the log's snapshot. If the disk is full, the member starts without
// that, so that it can serve reads: the log still has the entries, and the next checkpoint saves a newer snapshot.
func (c *Checkpointer) saveSnapshot(at store.Checkpoint) error {
	err := c.cfg.Log.SaveSnapshot(at.Snapshot())
	if !errors.Is(err, raftwal.ErrNoSpace) {
		return err
	}
	// Raft panics if the applied index is above the log's commit index. The checkpoint was made after SaveCommit, so
	// that happens only if the log is older than the store, for example from a backup.
	hard, _, readErr := c.cfg.Log.InitialState()
	if readErr != nil || hard.GetCommit() < at.Index {
		return errors.Join(err, readErr)
	}
	c.cfg.Logger.Error("no room to note the last checkpoint in the log", "index", at.Index, "error", err)
	c.cfg.Disk.wakeup.Wake()
	return nil
}

// advanceStore is called if the log's snapshot is newer than the store. Either the crash came after the
// log took a leader's snapshot and before the store had restored it, or store.db is an older copy.
func (c *Checkpointer) advanceStore(durable store.Checkpoint, logged uint64) error {
	ok, err := hasEntriesAfter(c.cfg.Log, durable)
	if err != nil {
		return err
	}
	if ok {
		c.cfg.Logger.Warn("the state is older than the log's snapshot; what is missing is applied again", "state", durable.Index, "snapshot", logged)
		return nil
	}
	path := c.cfg.Received.Path(logged)
	if err := c.cfg.Store.Restore(path); err != nil {
		return fmt.Errorf("the log begins at a snapshot of index %d, the state in store.db is of index %d, and %s cannot be restored: %w", logged, durable.Index, path, err)
	}
	return nil
}

// hasEntriesAfter reports whether the log has all entries after the checkpoint, and belongs to the same history. Then
// they are applied again. It is false after a leader's snapshot, which has replaced the log's entries.
func hasEntriesAfter(log *raftwal.Log, at store.Checkpoint) (bool, error) {
	first, err := log.FirstIndex()
	if err != nil || at.Index+1 < first {
		return false, err
	}
	// With another term, the entry at that index is another leader's, and the entries after it belong
	// to another state.
	term, err := log.Term(at.Index)
	return term == at.Term, err
}
