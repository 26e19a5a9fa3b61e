package rules

import (
	"io"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// Leader 2 is being removed from {1, 2}. Its state machine is behind, so it has
// not been handed the change; node 1 has applied it and is a quorum by itself.
// It needs nobody's vote, and its own must not count while it is bound.
func TestV5OwnVoteDoesNotCountWhileBound(t *testing.T) {
	s := begin(t, leasetest.Options{
		Voters: []uint64{1, 2},
		Node: func(id uint64) leasetest.NodeOptions {
			o := leasetest.NodeOptions{Async: true}
			if id == 2 {
				o.ApplyDelay = func() time.Duration { return 2 * time.Second }
			}
			return o
		},
	})
	n := s.Node(2)
	n.Campaign()
	s.RunUntil(5*time.Second, n.Valid)
	s.wantReign(2, 1)
	// Raft hands no more entries out while so many bytes are being applied.
	if err := n.Raw().Propose(make([]byte, 1<<16)); err != nil {
		t.Fatalf("Propose() = %v", err)
	}
	n.Kick()
	s.Run(5 * ms)
	n.Change(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(2))})
	if !s.RunUntil(100*ms, func() bool { return len(s.Node(1).Conf().GetVoters()) == 1 }) {
		t.Fatalf("Conf() of node 1 = %v, want voters [1]", s.Node(1).Conf())
	}
	s.wantReign(2, 1)
	s.isolate(2)
	s.usurp(1)
	if s.stats(1).Withheld.VoteRespOut == 0 {
		t.Error("node 1 withheld no vote of its own, want some")
	}
}

// A node that ticked would elect itself without sending anything, so raft does
// not tick while the node is bound; a burst of ticks changes nothing.
func TestV5TickIsWithheld(t *testing.T) {
	s := begin(t, leasetest.Options{Voters: []uint64{1}})
	n := s.lead(1)
	n.Crash(0)
	n.Restart()
	for range 128 {
		if n.Lease().Tick() {
			t.Fatal("Tick() of a sole voter in its restart hold = true, want false")
		}
	}
	s.Run(duration)
	if n.Role() == raft.StateLeader {
		t.Error("node 1 leads in its restart hold")
	}
	if !s.RunUntil(3*time.Second, n.Valid) {
		t.Error("node 1 never led again")
	}
}

// Without AsyncStorageWrites raft counts a node's own vote in Advance, where no
// filter sees it. An embedding that campaigns without asking is held back in
// Ready until the promise is over.
func TestV5ReadyIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := raft.NewMemoryStorage()
		if err := storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1}},
		}}); err != nil {
			t.Fatal(err)
		}
		if err := storage.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}); err != nil {
			t.Fatal(err)
		}
		rc := &raft.Config{
			ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, MaxSizePerMsg: 1 << 16, MaxInflightMsgs: 8,
			PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
			Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
		}
		raw, err := raft.NewRawNode(rc)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		lease, err := leaderlease.New(leaderlease.Config{Raft: rc, TickInterval: 100 * ms, Clock: clock.Runtime()})
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Campaign(); err != nil {
			t.Fatal(err)
		}
		for raw.HasReady() && raw.Status().RaftState != raft.StateLeader {
			rd := raw.Ready()
			lease.Ready(&rd)
			raw.Advance(rd)
		}
		if raw.Status().RaftState != raft.StateLeader {
			t.Fatalf("RaftState = %v, want StateLeader", raw.Status().RaftState)
		}
		if took := time.Since(begin); took != duration {
			t.Errorf("node 1 elected itself after %v, want %v, the restart hold", took, duration)
		}
	})
}
