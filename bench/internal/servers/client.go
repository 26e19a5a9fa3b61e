// Package servers puts server processes under load through etcd's own client, lets their
// leaders die, and measures them with much data. The same code measures kvnode and etcd, or
// any program that takes etcd's flags.
package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/internal/kvclient"
	kvnodeclient "github.com/leaderlease/go/kvnode/client"
	"github.com/leaderlease/go/kvnode/fastkv"
)

// Mode is how a read asks to be served. A read says it in its metadata (x-lease-read). etcd
// ignores that; kvnode's trailers say how it served the read.
type Mode struct {
	// Lease is the value of x-lease-read: auto, lease, read-index or log. Empty says
	// nothing, and asks for no trailers.
	Lease string
	// Serializable asks for local state, in etcd's own way.
	Serializable bool
}

// The modes by name. A server that is not kvnode knows Auto and Serializable.
var (
	Plain        = Mode{}
	Auto         = Mode{Lease: "auto"}
	ByLease      = Mode{Lease: "lease"}
	ByReadIndex  = Mode{Lease: "read-index"}
	ByLog        = Mode{Lease: "log"}
	Serializable = Mode{Lease: "auto", Serializable: true}
)

// streamsPerConn keeps below the 256 requests that kvnode serves on one
// connection at a time. Every server gets the same number of connections.
const streamsPerConn = 128

// Conns are clients of some endpoints.
type Conns struct {
	Endpoints []string
	clients   []*clientv3.Client
	value     string
}

// Dial connects to endpoints for a number of concurrent requests, with values of some
// length. Opts say which endpoint a request goes to: without any, each in turn.
func Dial(endpoints []string, concurrent, valueLen int, opts ...grpc.DialOption) (*Conns, error) {
	clients, err := dial(endpoints, (concurrent+streamsPerConn-1)/streamsPerConn, opts...)
	return &Conns{Endpoints: endpoints, clients: clients, value: string(make([]byte, valueLen))}, err
}

func dial(endpoints []string, n int, opts ...grpc.DialOption) (all []*clientv3.Client, err error) {
	for range n {
		client, err := kvclient.New(nil, endpoints, opts...)
		if err != nil {
			return nil, errors.Join(err, kvclient.Close(all))
		}
		all = append(all, client)
	}
	return all, nil
}

// Prefix is the prefix of all keys.
const Prefix = "/bench/"

func keyName(i int) string { return fmt.Sprintf(Prefix+"%08d", i) }

// ByStreams makes the clients send by fastkv's streams from now on.
func (c *Conns) ByStreams() error {
	var errs []error
	for _, to := range c.clients {
		errs = append(errs, fastkv.Use(to))
	}
	return errors.Join(errs...)
}

// Close closes the connections.
func (c *Conns) Close() error { return kvclient.Close(c.clients) }

// Reader returns a Target with clients that read in a mode.
func (c *Conns) Reader(mode Mode) load.Target { return target{c, mode} }

type target struct {
	conns *Conns
	mode  Mode
}

// Client implements load.Target.
func (t target) Client(i int) load.Client {
	c := &client{to: t.conns.clients[i%len(t.conns.clients)], conns: t.conns}
	if t.mode.Serializable {
		c.opts = append(c.opts, clientv3.WithSerializable())
	}
	if t.mode.Lease != "" {
		c.md = metadata.Pairs(kvnodeclient.MetadataReadMode, t.mode.Lease)
	}
	return c
}

type client struct {
	to    *clientv3.Client
	conns *Conns
	opts  []clientv3.OpOption
	md    metadata.MD
}

// Read implements load.Client.
func (c *client) Read(ctx context.Context, key int) (load.Seen, error) {
	var served kvclient.Served
	if c.md != nil {
		ctx = metadata.NewOutgoingContext(kvclient.WithServed(ctx, &served), c.md)
	}
	resp, err := c.to.Get(ctx, keyName(key), c.opts...)
	if err != nil {
		return load.Seen{}, err
	}
	seen := load.Seen{Path: load.ParsePath(served.Path)}
	if seen.Path == load.PathLease && served.Remaining < 0 {
		return load.Seen{}, ErrTrailer
	}
	if len(resp.Kvs) > 0 {
		seen.Version = uint64(resp.Kvs[0].GetModRevision())
	}
	return seen, nil
}

// Write implements load.Client.
func (c *client) Write(ctx context.Context, key int) (uint64, error) {
	resp, err := c.to.Put(ctx, keyName(key), c.conns.value)
	if err != nil {
		return 0, err
	}
	return uint64(resp.Header.GetRevision()), nil
}

// ErrTrailer says that a server claims a lease read without saying for how long
// the lease was good.
var ErrTrailer = errors.New("lease read without " + kvnodeclient.TrailerRemaining)

// Roles are the endpoints of a cluster by their role.
type Roles struct {
	Leader string
	// Follower is empty in a cluster of one.
	Follower string
	// Version is the version of the leader.
	Version string
}

const (
	askTimeout = time.Second
	askPause   = 20 * time.Millisecond
)

// Find asks all endpoints until one says that it leads and every other one agrees. Secure is
// nil for plain text.
func Find(ctx context.Context, secure *tls.Config, endpoints []string) (*Roles, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("no endpoints")
	}
	for {
		roles, err := find(ctx, secure, endpoints)
		if err == nil {
			return roles, nil
		}
		if stopped := durations.Sleep(ctx, askPause); stopped != nil {
			return nil, fmt.Errorf("find the leader of %v: %w: %w", endpoints, stopped, err)
		}
	}
}

func find(ctx context.Context, secure *tls.Config, endpoints []string) (*Roles, error) {
	c, err := kvclient.New(secure, endpoints)
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // nothing is under way
	r := &Roles{}
	var leader uint64
	for _, e := range endpoints {
		s, err := ask(ctx, c, e)
		if err != nil {
			return nil, err
		}
		if s.Leader == 0 || leader != 0 && s.Leader != leader {
			return nil, fmt.Errorf("%s says that member %x leads, another one said %x", e, s.Leader, leader)
		}
		leader = s.Leader
		if s.Leader == s.Header.GetMemberId() {
			r.Leader, r.Version = e, s.Version
		} else {
			r.Follower = e
		}
	}
	if r.Leader == "" {
		return nil, fmt.Errorf("member %x leads and is none of %v", leader, endpoints)
	}
	return r, nil
}

func ask(ctx context.Context, c *clientv3.Client, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return c.Status(ctx, endpoint)
}
