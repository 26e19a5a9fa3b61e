package kvnode

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/raftwal"
)

// replays reports whether the log has all entries after the checkpoint, and is the
// one that led to it: then they are applied again, whatever snapshot the log has.
// One that a leader sent has taken the place of the entries before it.
func replays(log *raftwal.Log, from store.Checkpoint) (bool, error) {
	first, err := log.FirstIndex()
	if err != nil || from.Index+1 < first {
		return false, err
	}
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
