package inproc

import (
	"context"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/kvnode"
)

// Wrong is a way to serve a read that is not linearizable, and says that it is.
// A benchmark whose audit does not catch each of them proves nothing.
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
