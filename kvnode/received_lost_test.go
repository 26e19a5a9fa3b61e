package kvnode

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// A snapshot that cannot be restored ends the member: without it the store would go on
// with a gap.
func TestASnapshotThatCannotBeRestoredEndsTheMember(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		lost := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(n.store.Applied() + 100), Term: new(n.Term())}}
		done := make(chan struct{})
		if n.applier.runJob(applyJob{restore: lost, done: done}) {
			t.Error("runJob() of a snapshot that is not there = true, want false")
		}
		wantEnd(t, n)
		if n.Err() == nil {
			t.Error("Err() = nil, want why the member has ended")
		}
	})
}
