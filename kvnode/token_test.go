package kvnode

import (
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

var lockKey = []byte("lock")

// acquire makes the lock's key under a TTL lease unless it is there, and returns
// its create revision: the fencing token.
func (c *cluster) acquire(n *Node, id int64) (token int64) {
	c.t.Helper()
	c.do(n, &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: id, TTL: 5}})
	res := c.do(n, &pb.InternalRaftRequest{Txn: &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: lockKey, Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: lockKey, Lease: id}}}},
	}})
	if !succeeded(res) {
		c.t.Fatalf("the lock is held, want it free")
	}
	kv, _ := n.Store().Get(lockKey)
	return kv.GetCreateRevision()
}

// write puts a key if the lock still has that token.
func (c *cluster) write(n *Node, token int64, value string) bool {
	c.t.Helper()
	res := c.do(n, &pb.InternalRaftRequest{Txn: &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: lockKey, Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
			TargetUnion: &pb.Compare_CreateRevision{CreateRevision: token},
		}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("guarded"), Value: []byte(value)}}}},
	}})
	return succeeded(res)
}

func succeeded(res store.Result) bool {
	resp, _ := res.Response.(*pb.TxnResponse)
	return resp.GetSucceeded()
}

// Tokens grow through losses of the lock and faults of the cluster, and a holder that has lost the lock writes
// nothing.
func TestTokensNeverGoBackwards(t *testing.T) {
	few := func(c *Config) { c.SnapshotCount, c.CatchUpEntries = 20, 5 }
	inCluster(t, 3, few, func(t *testing.T, c *cluster) {
		var last int64
		for round := range int64(8) {
			leader := c.leader()
			token := c.acquire(leader, round+1)
			if token <= last {
				t.Fatalf("token %d after %d in round %d, want a higher one", token, last, round)
			}
			if last > 0 && c.write(leader, last, "stale") {
				t.Fatalf("a write with token %d went through when %d was given", last, token)
			}
			if !c.write(leader, token, fmt.Sprint(round)) {
				t.Fatalf("a write with the newest token %d was refused", token)
			}
			last = token
			switch round % 4 {
			case 0: // the holder is gone, and so is the leader
				c.isolate(leader)
				c.leader(leader)
				time.Sleep(8 * time.Second)
				c.net.HealAll()
			case 1: // the holder is gone
				time.Sleep(8 * time.Second)
			case 2: // the holder gives it back, and the cluster is restarted
				c.do(leader, &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: round + 1}})
				for _, name := range []string{"m1", "m2", "m3"} {
					c.stop(name)
				}
				for _, name := range []string{"m1", "m2", "m3"} {
					c.start(name)
				}
			case 3: // the next leader is one that was brought up to date by a snapshot
				away := c.followers(leader)[0]
				c.isolate(away)
				for range 50 {
					c.put(leader, "k", "v")
				}
				c.net.HealAll()
				time.Sleep(8 * time.Second)
				if err := leader.MoveLeader(t.Context(), away.ID()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
