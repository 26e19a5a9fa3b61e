package kvnode

import (
	"os"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A member that waits to be let in does not vote: it may have voted, and promised, in a
// directory that was lost.
func TestWhoWaitsDoesNotVote(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		for _, name := range []string{"m1", "m2", "m3"} {
			c.crash(c.nodes[name])
		}
		if err := os.RemoveAll(c.cfgs["m1"].DataDir); err != nil {
			t.Fatal(err)
		}
		n := c.start("m1")
		time.Sleep(5 * time.Second)
		var before, after uint64
		n.call(func() { before = n.loop.raw.BasicStatus().GetTerm() })
		vote := &raftpb.Message{
			Type: raftpb.MsgVote.Enum(), From: new(n.id.Members[1].ID), To: new(n.ID()), Term: new(before + 1),
			LogTerm: new(before + 1), Index: new(uint64(100)),
		}
		n.call(func() { n.loop.step(vote) })
		n.call(func() { after = n.loop.raw.BasicStatus().GetTerm() })
		if after != before {
			t.Errorf("a candidate has moved it from term %d to %d, want that it does not hear it", before, after)
		}
	})
}
