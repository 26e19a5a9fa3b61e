package kvnode

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

// A leader that comes back at once gets answers to what it sent before, which it may
// have lost with the end of its process. Nothing is wrong with that.
func TestAnswersToThePastAreNoErrors(t *testing.T) {
	log := &lines{}
	inCluster(t, 3, func(c *Config) { c.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		follower := c.followers(leader)[0]
		answer := func(to *Node, term uint64) {
			peers{to}.Receive(&raftpb.Message{
				Type: raftpb.MsgAppResp.Enum(), From: new(c.followers(to)[0].ID()), To: new(to.ID()), Term: new(term), Index: new(to.last.Load() + 5),
			}, transport.ProcessID{})
			time.Sleep(10 * time.Millisecond)
		}
		const dropped = "message dropped"
		answer(leader, leader.Term()-1)
		answer(follower, follower.Term())
		if got := log.count(dropped); got != 0 {
			t.Errorf("%d errors about answers to what was sent in an earlier term, or by another leader, want none", got)
		}
		answer(leader, leader.Term())
		if got := log.count(dropped); got != 1 {
			t.Errorf("%d errors about an acknowledgement of what was never sent, want 1", got)
		}
		c.put(leader, "k", "v")
	})
}
