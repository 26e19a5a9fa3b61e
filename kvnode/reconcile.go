package kvnode

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/raftwal"
)

// reconcile brings log and store to the same checkpoint, or leaves the store
// behind it if the log has the entries in between. A crash may have come between
// the two, in either order (see checkpoint.go and snapshot.go).
func (n *Node) reconcile() error {
	snap, err := n.wal.Snapshot()
	if err != nil {
		return err
	}
	logged, durable := snap.GetMetadata().GetIndex(), n.store.Durable()
	switch {
	case durable.Index > logged:
		// A crash after Store.Checkpoint, and before the log heard of it (checkpoints.shorten).
		if err := n.noteState(durable); err != nil {
			return fmt.Errorf("the state in store.db is of index %d, and the log, whose snapshot is of index %d, does not take it: %w", durable.Index, logged, err)
		}
	case durable.Index < logged:
		// A crash after the log took a leader's snapshot, and before the store had restored it
		// (appends.appended). Or store.db is an older one, which the log can make up for.
		again, err := replays(n.wal, durable)
		if err != nil {
			return err
		}
		if again {
			n.log.Warn("the state is older than the log's snapshot; what is missing is applied again", "state", durable.Index, "snapshot", logged)
			break
		}
		// It is there: received.save had made it durable before raft heard of the snapshot, and drop
		// spares what the store is not durable at.
		path := n.received.path(logged)
		if err := n.store.Restore(path); err != nil {
			return fmt.Errorf("the log begins at a snapshot of index %d, the state in store.db is of index %d, and %s cannot be restored: %w", logged, durable.Index, path, err)
		}
	}
	n.received.drop(n.store.Durable().Index)
	return nil
}

// noteState tells the log of a state that it has not heard of. If there is no room
// for that, nothing is missing: the entries are there, and the next checkpoint
// tries again. Whoever stopped here would stop a member that serves reads.
func (n *Node) noteState(at store.Checkpoint) error {
	err := n.wal.SaveSnapshot(at.Snapshot())
	if !errors.Is(err, raftwal.ErrNoSpace) {
		return err
	}
	hard, _, readErr := n.wal.InitialState()
	// But the log must know the index to be committed: raft panics where more is applied than that.
	// SaveCommit came before the checkpoint, so this is so unless the log was put back.
	if readErr != nil || hard.GetCommit() < at.Index {
		return errors.Join(err, readErr)
	}
	n.log.Error("no room to note the last checkpoint in the log", "index", at.Index, "error", err)
	n.checkpoints.ask.Wake()
	return nil
}

// replays reports whether the log has all entries after the checkpoint, and is the
// one that led to it: then they are applied again, whatever snapshot the log has.
// One that a leader sent has taken the place of the entries before it.
func replays(log *raftwal.Log, from store.Checkpoint) (bool, error) {
	first, err := log.FirstIndex()
	if err != nil || from.Index+1 < first {
		return false, err
	}
	// The same index alone is not enough: of another term it is another leader's entry, and what
	// follows it would be applied to a state that it was not proposed for.
	term, err := log.Term(from.Index)
	return term == from.Term, err
}

// startLog is the log as raft begins with it. The configuration is the store's:
// the log's is as of its snapshot, and changes up to there may be applied again.
type startLog struct {
	*raftwal.Log
	conf *raftpb.ConfState
}

// InitialState implements raft.Storage.
func (l startLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hard, _, err := l.Log.InitialState()
	return hard, raftpb.EnsureConfState(l.conf), err
}
