package inproc

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/kvnode"
)

// Reader returns a client that reads from member i in a mode, and writes there.
// It serves any number of goroutines.
func (c *Cluster) Reader(i int, mode kvnode.ReadMode) load.Client {
	return &client{c: c, node: c.nodes[i], mode: mode}
}

type client struct {
	c    *Cluster
	node *kvnode.Node
	mode kvnode.ReadMode
}

// Read implements load.Client. The value is fetched after the check, and the
// order is the point.
func (c *client) Read(ctx context.Context, key int) (load.Seen, error) {
	r, err := c.node.Read(ctx, c.mode)
	if err != nil {
		return load.Seen{}, err
	}
	return load.Seen{Version: c.version(key), Path: load.ParsePath(r.Path)}, nil
}

func (c *client) version(key int) uint64 {
	kv, _ := c.node.Store().Get(c.c.keys[key])
	return uint64(kv.GetModRevision())
}

// Write implements load.Client.
func (c *client) Write(ctx context.Context, key int) (uint64, error) {
	return c.c.put(ctx, c.node, key)
}

func (c *Cluster) put(ctx context.Context, n *kvnode.Node, key int) (uint64, error) {
	put := &pb.PutRequest{Key: c.keys[key], Value: c.value}
	res, err := n.Propose(ctx, &pb.InternalRaftRequest{Put: put})
	if err == nil {
		err = res.Err
	}
	if err != nil {
		return 0, err
	}
	done, ok := res.Response.(*pb.PutResponse)
	if !ok {
		return 0, fmt.Errorf("inproc: a put was answered with %T", res.Response)
	}
	return uint64(done.GetHeader().GetRevision()), nil
}

// perTxn is how many keys are written at once.
const perTxn = 100

func (c *Cluster) putAll(ctx context.Context, n *kvnode.Node) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for first := 0; first < len(c.keys); first += perTxn {
		txn := &pb.TxnRequest{}
		for _, key := range c.keys[first:min(first+perTxn, len(c.keys))] {
			put := &pb.PutRequest{Key: key, Value: c.value}
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
		}
		res, err := n.Propose(ctx, &pb.InternalRaftRequest{Txn: txn})
		if err == nil {
			err = res.Err
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Wrong is a way to serve a read that is not linearizable, and says that it is.
// A benchmark proves nothing if its audit does not catch each of them.
type Wrong string

const (
	// FetchFirst fetches the value and asks for permission then.
	FetchFirst Wrong = "value-before-check"
	// Mislabelled serves local state of a follower and calls it a lease read.
	Mislabelled Wrong = "stale-labelled-lease"
)

// Wrongs are all of them.
var Wrongs = []Wrong{FetchFirst, Mislabelled}

// WrongReader returns a client that reads from member i, a follower, in that way
// and writes at the leader. At a leader the same mistakes take a pause to show.
func (c *Cluster) WrongReader(i, leader int, w Wrong) load.Client {
	right := &client{c: c, node: c.nodes[i], mode: kvnode.ReadIndex}
	if w == Mislabelled {
		right.mode = kvnode.ReadSerializable
	}
	return &wrongClient{client: right, leader: c.nodes[leader], wrong: w}
}

type wrongClient struct {
	*client
	leader *kvnode.Node
	wrong  Wrong
}

// Write implements load.Client.
func (c *wrongClient) Write(ctx context.Context, key int) (uint64, error) {
	return c.c.put(ctx, c.leader, key)
}

// Read implements load.Client.
func (c *wrongClient) Read(ctx context.Context, key int) (load.Seen, error) {
	if c.wrong == Mislabelled {
		seen, err := c.client.Read(ctx, key)
		seen.Path = load.PathLease
		return seen, err
	}
	version := c.version(key)
	seen, err := c.client.Read(ctx, key)
	return load.Seen{Version: version, Path: seen.Path}, err
}
