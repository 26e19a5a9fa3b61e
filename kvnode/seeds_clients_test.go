package kvnode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

const (
	seedClients = 4
	seedKeys    = 2
)

type seedClient struct {
	run    *seedRun
	name   int
	random *rand.Rand
	count  int
	seen   [seedKeys]int64
}

func (c *seedClient) work(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(10_000+c.random.IntN(90_000)) * time.Microsecond)
		i, k, kind := c.random.IntN(len(c.run.members)), c.random.IntN(seedKeys), c.random.IntN(20)
		limit := time.Duration(300_000+c.random.IntN(3_000_000)) * time.Microsecond
		n := c.run.running[i].Load()
		if n == nil {
			continue
		}
		o := &seedOp{client: c.name, member: n.Name(), key: fmt.Sprintf("k%d", k), begin: c.run.history.now(), from: time.Since(c.run.began)}
		bounded, cancel := context.WithTimeout(context.Background(), limit)
		switch {
		case kind < 8:
			c.read(bounded, n, o, "lease", ReadLease)
		case kind < 11:
			c.read(bounded, n, o, "round", ReadIndex)
		default:
			c.write(bounded, n, o, kind < 15, c.seen[k])
		}
		cancel()
		o.end, o.to = c.run.history.now(), time.Since(c.run.began)
		if o.err == nil {
			c.seen[k] = o.version
		}
		c.run.history.add(o)
	}
}

func (c *seedClient) read(ctx context.Context, n *Node, o *seedOp, kind string, mode ReadMode) {
	o.kind = kind
	if _, o.err = n.Read(ctx, mode); o.err != nil {
		return
	}
	if kv, _ := n.Store().Get([]byte(o.key)); kv != nil {
		o.version, o.value = kv.GetVersion(), string(kv.GetValue())
	}
}

// write is a put, or a compare-and-swap that expects the version that the client knows.
func (c *seedClient) write(ctx context.Context, n *Node, o *seedOp, swap bool, expect int64) {
	c.count++
	o.kind, o.value, o.expect = "put", fmt.Sprintf("%d.%d", c.name, c.count), expect
	key := []byte(o.key)
	req := &pb.PutRequest{Key: key, Value: []byte(o.value), PrevKv: true}
	r := &pb.InternalRaftRequest{Put: req}
	if swap {
		o.kind = "cas"
		r = &pb.InternalRaftRequest{Txn: &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: key, Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{Version: expect}}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: req}}},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}},
		}}
	}
	res, err := n.Propose(ctx, r)
	if o.err = errors.Join(err, res.Err); o.err != nil {
		return
	}
	o.outcome(res)
}

func (o *seedOp) outcome(res store.Result) {
	put, _ := res.Response.(*pb.PutResponse)
	if txn, ok := res.Response.(*pb.TxnResponse); ok {
		put = txn.GetResponses()[0].GetResponsePut()
		if put == nil {
			for _, kv := range txn.GetResponses()[0].GetResponseRange().GetKvs() {
				o.version = kv.GetVersion()
			}
			o.value = ""
			return
		}
	}
	o.wrote, o.version = true, put.GetPrevKv().GetVersion()+1
}
