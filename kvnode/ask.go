package kvnode

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// forwardReads sends the request of a follower's reads to its leader, as raft would, without
// two turns of the raft loop. The lease calls it with its lock held, so it neither waits nor
// calls the lease: requests is its channel. Where nobody leads, or this member does, the
// loop takes the request. The leader is raft's, known here no later than to the lease:
// Leader is behind for a moment, and who led before would drop the request.
//
// A leader of a moment ago passes it on, or drops it as the network does: the lease asks
// again, by the loop.
func (n *Node) forwardReads() {
	lead := n.loop.follows.Load()
	if lead == raft.None || lead == n.leadership.self {
		return
	}
	select {
	case rctx := <-n.requests:
		n.links.Send([]*raftpb.Message{{
			Type: raftpb.MsgReadIndex.Enum(), From: new(n.leadership.self), To: new(lead), Entries: []*raftpb.Entry{{Data: rctx}},
		}})
	default: // the loop was faster
	}
}
