package kvnode

import (
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Raft looks for configuration changes in what is committed and, as far as it has
// been told, not applied, before it campaigns: a checkpoint of what is applied since
// must leave that in the log.
func TestACheckpointLeavesWhatRaftMayScan(t *testing.T) {
	few := func(c *Config) { c.CatchUpEntries = 1 }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		leader := c.leader()
		n := c.followers(leader)[0]
		time.Sleep(time.Second)
		c.isolate(n)
		for range 20 {
			c.put(leader, "k", "v")
		}
		c.net.HealAll()
		before := n.Store().Applied()
		n.call(func() { c.lateApplier(t, n, leader) })
		if n.Store().Applied() < before+20 {
			t.Errorf("%d is applied, want %d and more: the test does not test it", n.Store().Applied(), before+20)
		}
		c.crash(c.followers(n)[0])
		c.put(c.leader(), "k", "w")
	})
}

// lateApplier catches n up while its loop, which calls this, hears of nothing that is
// applied; makes a checkpoint; and lets raft campaign.
func (c *cluster) lateApplier(t *testing.T, n, leader *Node) {
	var late []*raftpb.Message
	for range 1000 {
		if n.Store().Applied() >= leader.Store().Applied() {
			break
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		for _, m := range n.loop.local.Drain(nil) {
			if m.GetFrom() == raft.LocalApplyThread {
				late = append(late, m)
				continue
			}
			n.loop.stepLocal(m)
		}
		n.loop.drain()
		n.loop.handleReadys()
	}
	if err := n.checkpoints.Make(); err != nil {
		t.Error(err)
	}
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("raft does not campaign: %v", r)
		}
		for _, m := range late {
			n.loop.stepLocal(m)
		}
	}()
	if err := n.loop.raw.Campaign(); err != nil {
		t.Error(err)
	}
}
