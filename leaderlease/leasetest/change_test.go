package leasetest

import (
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A change of membership was acknowledged, so the member that was removed is
// switched off. The one that remains is killed before it writes anything more,
// and must not wait for the other's vote.
func TestAChangeOutlivesACrash(t *testing.T) {
	for _, v := range []struct {
		name           string
		async, forgets bool
		want           bool
	}{
		{"synchronous", false, false, true},
		{"with AsyncStorageWrites", true, false, true},
		{"without the commit index on disk", false, true, false},
		{"the same with AsyncStorageWrites", true, true, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := pair(t, NodeOptions{Async: v.async, ForgetsChanges: v.forgets, DiskDelay: func() time.Duration { return 5 * time.Millisecond }})
			one, two := c.Node(1), c.Node(2)
			remove(one, 2)
			if !c.RunUntil(time.Second, func() bool { return len(one.Conf().GetVoters()) == 1 }) {
				t.Fatalf("node 1 has configuration %v, want itself alone", one.Conf())
			}
			two.Crash(0)
			one.Crash(0)
			one.Restart()
			if got := c.RunUntil(20*time.Second, func() bool { return c.Leader() == one }); got != v.want {
				t.Errorf("node 1 leads after the restart: %v, want %v: configuration %v", got, v.want, one.Conf())
			}
		})
	}
}

// pair returns a group of nodes 1, which leads, and 2.
func pair(t *testing.T, opts NodeOptions) *Cluster {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	c := New(Options{Voters: []uint64{1, 2}, Node: func(uint64) NodeOptions { return opts }})
	if !c.Elect(1) {
		t.Fatal("Elect(1) = false")
	}
	c.Run(time.Second)
	return c
}

func remove(l *Node, id uint64) {
	l.Change(&raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(id)})
}
