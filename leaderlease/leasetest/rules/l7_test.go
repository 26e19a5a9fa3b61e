package rules

import (
	"context"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// A forced vote makes the leader step down and vote in one Ready. When the vote
// leaves, no reader passes the old lease any more.
func TestL7StepDownIsSeenBeforeTheVoteLeaves(t *testing.T) {
	s, late := aborted(t)
	s.Net.Cut(1, 2)
	s.Run(election + 300*ms)
	s.wantLeader(1, 1)
	s.Net.Join(1, 2)
	votes := 0
	s.Net.OnSend = func(m *raftpb.Message) {
		if m.GetType() == raftpb.MsgVoteResp && m.GetFrom() == 1 && !m.GetReject() {
			votes++
			s.wantStatus(1, core.NotLeader)
		}
	}
	s.hand(late)
	s.Run(5 * ms)
	if votes == 0 {
		t.Fatal("node 1 granted no vote")
	}
	s.disjoint()
}

// The commit index is published before any message of its Ready leaves. Node 1 has a slow disk,
// so its own state machine gets the entry much later than the followers, which learn of the commit
// from node 1.
func TestL7CommitIndexIsSeenBeforeTheMessagesLeave(t *testing.T) {
	slow := false
	s := begin(t, leasetest.Options{Node: func(id uint64) leasetest.NodeOptions {
		return leasetest.NodeOptions{Async: true, DiskDelay: diskDelay(id == 1, &slow)}
	}})
	s.lead(1)
	s.Run(500 * ms)
	slow = true
	s.Node(1).Write(7, 1, func(uint64) {})
	if !s.RunUntil(500*ms, func() bool { return s.Node(2).Version(7) != 0 }) {
		t.Fatal("node 2 has not applied the write")
	}
	written := s.Node(2).Version(7)
	if s.Node(1).Version(7) != 0 {
		t.Fatal("node 1 has applied the write already")
	}
	index, st := s.Node(1).Lease().TryRead()
	if st != core.Valid || index < written {
		t.Errorf("TryRead() = %d, %v, want at least %d, valid", index, st, written)
	}
	a := s.read(1, 7)
	s.Run(2 * election)
	if !a.served() || a.version != written {
		t.Errorf("Read(7) = %+v, want version %d", *a, written)
	}
}

// What the embedder gives up on purpose is gone when the call returns.
func TestL7CloseAndInvalidateTakeEffectAtOnce(t *testing.T) {
	s := begin(t, leasetest.Options{})
	n := s.lead(1)
	hook.Invalidate(n.Lease())
	s.wantStatus(1, core.Expired)
	s.Run(200 * ms)
	s.wantStatus(1, core.Valid)
	n.Lease().Close()
	s.wantStatus(1, core.Closed)
	s.Run(200 * ms)
	s.wantStatus(1, core.Closed)
	var err error
	n.Lease().StartRead(context.Background(), leaderlease.ReadModeLease, func(_ leaderlease.ReadResult, e error) { err = e })
	if err == nil {
		t.Error("StartRead() after Close = nil, want an error")
	}
}
