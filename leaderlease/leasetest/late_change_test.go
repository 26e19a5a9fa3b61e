package leasetest

import (
	"fmt"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A change of membership waits to be applied while raft restores a snapshot that includes
// it. Raft would apply it a second time: it panics if it leaves a joint configuration twice,
// and applies other changes silently.
func TestAChangeIsNotAppliedBehindASnapshot(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async=%v", async), func(t *testing.T) { changeBehindASnapshot(t, async) })
	}
}

func changeBehindASnapshot(t *testing.T, async bool) {
	cryptotest.SetGlobalRandom(t, 1)
	var apply, disk time.Duration // of node 3
	c := New(Options{Voters: []uint64{1, 2, 3, 4}, Node: slowThird(async, &apply, &disk)})
	if !c.Elect(1) {
		t.Fatal("Elect(1) = false")
	}
	leader, late := c.Node(1), c.Node(3)
	leader.Change(&raftpb.ConfChangeV2{
		Transition: raftpb.ConfChangeTransitionJointExplicit.Enum(),
		Changes:    []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(4))}},
	})
	c.Run(time.Second)
	// Node 3 has the entry that leaves, and hears nothing of what follows.
	last := leader.Applied() + 1
	c.Net.Hold = func(m *raftpb.Message) bool { return m.GetTo() == 3 && m.GetCommit() >= last }
	leader.Change(&raftpb.ConfChangeV2{})
	c.Run(10 * time.Millisecond)
	leader.Write(1, 1, func(uint64) {})
	c.Run(10 * time.Millisecond)
	leader.Compact()
	// It is found to need a snapshot, hears that the entry is committed, and then
	// gets the snapshot.
	c.Net.DropHeld(nil)
	c.Net.Hold = func(m *raftpb.Message) bool { return m.GetTo() == 3 && m.GetType() != raftpb.MsgApp }
	leader.Write(1, 2, func(uint64) {})
	c.Run(200 * time.Millisecond)
	c.Net.Hold = OfType(raftpb.MsgSnap)
	apply = 500 * time.Millisecond
	c.Net.Release(OfType(raftpb.MsgHeartbeat))
	c.Run(10 * time.Millisecond)
	if got := late.Raw().BasicStatus().GetCommit(); got != last || len(late.Conf().GetVotersOutgoing()) == 0 || len(c.Net.Held()) == 0 {
		t.Fatalf("node 3 has commit index %d, want %d, configuration %v, want a joint one, and %d snapshots are under way, want some", got, last, late.Conf(), len(c.Net.Held()))
	}
	disk = time.Second
	c.Net.Hold = nil
	c.Net.Release(nil)
	c.Run(10 * time.Second)
	if got, want := late.Conf().GetVoters(), []uint64{1, 2, 3}; len(late.Conf().GetVotersOutgoing()) > 0 || !slices.Equal(got, want) {
		t.Errorf("node 3 has configuration %v, want voters %v", late.Conf(), want)
	}
	if late.Version(1) != leader.Version(1) {
		t.Errorf("node 3 has version %d of the key, the leader %d", late.Version(1), leader.Version(1))
	}
}

// slowThird has node 3 take as long as apply and disk say.
func slowThird(async bool, apply, disk *time.Duration) func(id uint64) NodeOptions {
	return func(id uint64) NodeOptions {
		if id != 3 {
			return NodeOptions{}
		}
		return NodeOptions{
			Async:      async,
			ApplyDelay: func() time.Duration { return *apply },
			DiskDelay:  func() time.Duration { return *disk },
		}
	}
}
