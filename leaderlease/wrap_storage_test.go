package leaderlease

import (
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// countsReads counts the calls of InitialState, which takes no lock in raft's MemoryStorage.
type countsReads struct {
	*raft.MemoryStorage
	reads int
}

func (s *countsReads) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	s.reads++
	return s.MemoryStorage.InitialState()
}

// Once Wrap has returned, the caller may use Storage from its goroutines: the Lease must not read
// the state that MemoryStorage leaves unlocked.
func TestAWrappedNodeReadsStorageBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc, cfg, clock := soleVoter(t)
		memory, ok := rc.Storage.(*raft.MemoryStorage)
		if !ok {
			t.Fatalf("Storage is a %T", rc.Storage)
		}
		storage := &countsReads{MemoryStorage: memory}
		rc.Storage, cfg.Raft.Storage = storage, storage
		inner := raft.RestartNode(rc)
		n, _, err := Wrap(inner, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Stop()
		before := storage.reads
		clock.Advance(time.Hour) // the restart hold has ended
		if err := inner.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-n.Ready()
		if storage.reads != before {
			t.Errorf("Wrap's goroutine has called InitialState %d times, want none", storage.reads-before)
		}
	})
}
