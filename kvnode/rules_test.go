package kvnode

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// The rules of this file are kept in more than one place, so that a cluster goes
// well without one of them, mostly.

// A member that has not noticed yet that it was deposed gets its index from the
// new leader. That does not confirm its own leadership.
func TestANewLeaderConfirmsNoOldOne(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		n := c.followers(c.leader())[0]
		now := n.leadership.current.Load()
		n.leadership.current.Store(&leader{id: n.ID(), term: n.Term(), changed: now.changed})
		if err := asTTLMember(n).Confirm(t.Context(), n.Term()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("Confirm() of a leadership that is over = %v, want ErrNotLeader", err)
		}
		n.leadership.current.Store(now)
	})
}

// A leader that removed itself, and answered, stops even if it is cut off.
func TestARemovedLeaderStopsUntold(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		leader := c.leader()
		time.Sleep(time.Second)
		for _, n := range c.followers(leader) { // they hear of it, but not that it is committed
			c.net.Delay(leader.Name(), n.Name(), 50*time.Millisecond)
		}
		if err := leader.RemoveMember(t.Context(), leader.ID()); err != nil {
			t.Fatal(err)
		}
		c.isolate(leader)
		select {
		case <-leader.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the removed member still runs after 10s")
		}
		if err := leader.Err(); !errors.Is(err, ErrRemoved) {
			t.Errorf("Err() = %v, want ErrRemoved", err)
		}
		delete(c.nodes, leader.Name())
	})
}

// Two entries are committed together, and the applier is at the first, which is malformed: its log line
// blocks. The second entry is not applied, so no read is served, although the leader has a valid lease.
func TestReadWaitsUntilCommittedEntriesAreApplied(t *testing.T) {
	var held, release chan struct{}
	blocking := func(cfg *Config) {
		held, release = make(chan struct{}), make(chan struct{})
		cfg.Logger = slog.New(onLine(func(line string) {
			if strings.HasPrefix(line, "an invalid entry or proposal") {
				close(held)
				<-release
			}
		}))
	}
	inCluster(t, 1, blocking, func(t *testing.T, c *cluster) {
		n := c.leader()
		<-n.Published()
		put, err := (&store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k")}}}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		n.calls.Push(func(l *raftLoop) {
			_ = l.raw.Step(propMessage(n.ID(), &raftpb.Entry{Data: []byte{0xff}}, &raftpb.Entry{Data: put}))
		})
		<-held
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := n.Read(ctx, ReadLease); !errors.Is(err, context.DeadlineExceeded) {
			kv, _ := n.Store().Get([]byte("k"))
			t.Errorf("Read() before all is applied = %v, and finds %v; want it to wait", err, kv)
		}
		close(release)
		if _, err := n.Read(t.Context(), ReadLease); err != nil {
			t.Errorf("Read() once all is applied = %v, want nil", err)
		}
	})
}

// A change that has become invalid since it was proposed has no effect.
func TestChangesAreCheckedWhenTheyAreApplied(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		change := membership.ChangeContext{Proposal: n.proposals.NextID(), Member: store.Member{ID: 77, PeerURLs: peerURLs("m1")}}
		entry, err := membership.NewChangeEntry(raftpb.ConfChangeAddNode, &change)
		if err != nil {
			t.Fatal(err)
		}
		r, err := n.proposals.SubmitChange(t.Context(), change.Proposal, entry)
		if err != nil || !errors.Is(r.Err, ErrMemberExists) {
			t.Errorf("a member with another's URL = %v, %v, want ErrMemberExists", r.Err, err)
		}
		var voters int
		n.call(func() { voters = len(n.loop.raw.Status().Config.Voters.IDs()) })
		if voters != 1 {
			t.Fatalf("raft counts %d voters, want 1", voters)
		}
		c.put(n, "k", "v")
	})
}
