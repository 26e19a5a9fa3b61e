// Package inproc runs a cluster of three kvnode members in this process, with
// real logs on disk and a network in memory with an adjustable round-trip time.
// It is a load.Target for the whole linearizable read: the check, and the answer of
// the state machine.
//
// There is no gRPC and no client's network. With a round trip of zero the links
// are faster than loopback TCP, which favours the reads that need peers.
package inproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/kvnode"
)

// Members is the number of members.
const Members = 3

// Options describe a cluster.
type Options struct {
	// Dir holds a data directory per member.
	Dir string
	// Keys is how many keys there are. All exist once Start returns.
	Keys int
}

// Cluster is three members.
type Cluster struct {
	net   *memlink.Network
	slow  *delays
	nodes []*kvnode.Node
	keys  [][]byte
	value []byte
}

func host(i int) string { return fmt.Sprint("n", i+1) }
func addr(i int) string { return net.JoinHostPort(host(i), "2380") }

const (
	tick          = 100 * time.Millisecond
	electionTicks = 10
	valueLen      = 128
)

// Start returns a cluster that has a leader and all keys.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	c := &Cluster{net: memlink.New(), value: make([]byte, valueLen)}
	var err error
	if c.slow, err = newDelays(); err != nil {
		return nil, err
	}
	for i := range max(opts.Keys, 1) {
		c.keys = append(c.keys, fmt.Appendf(nil, "/bench/%08d", i))
	}
	for i := range Members {
		n, err := c.startMember(i, opts)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.nodes = append(c.nodes, n)
	}
	if err := c.fill(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) startMember(i int, opts Options) (*kvnode.Node, error) {
	l, err := c.net.Listen(addr(i))
	if err != nil {
		return nil, err
	}
	cfg := kvnode.Config{
		Name: host(i), DataDir: filepath.Join(opts.Dir, host(i)), Listener: &listener{l, c.slow}, Dial: c.slow.dialer(c.net.Dialer(host(i))),
		TickInterval: tick, ElectionTimeout: electionTicks * tick,
	}
	for j := range Members {
		cfg.Cluster = append(cfg.Cluster, kvnode.Member{Name: host(j), PeerURLs: []string{"http://" + addr(j)}})
	}
	n, err := kvnode.Start(cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start member %s: %w", host(i), err), l.Close())
	}
	return n, nil
}

// fill writes every key, through the leader, and waits until all members can
// read. On a busy machine the first leader may not last.
func (c *Cluster) fill(ctx context.Context) error {
	for {
		err := c.tryFill(ctx)
		if !errors.Is(err, kvnode.ErrLeaderChanged) && !errors.Is(err, kvnode.ErrNoLeader) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(fillPause):
		}
	}
}

// fillPause is the wait before fill tries again with another leader.
const fillPause = 10 * time.Millisecond

func (c *Cluster) tryFill(ctx context.Context) error {
	n := c.nodes[0]
	if _, err := n.Read(ctx, kvnode.ReadLog); err != nil {
		return fmt.Errorf("wait for a leader: %w", err)
	}
	if err := c.putAll(ctx, n); err != nil {
		return fmt.Errorf("write %d keys: %w", len(c.keys), err)
	}
	for i, n := range c.nodes {
		if _, err := n.Read(ctx, kvnode.ReadLease); err != nil {
			return fmt.Errorf("first read of member %s: %w", host(i), err)
		}
	}
	return nil
}

// SetRTT makes a message and its answer between two members take d together.
func (c *Cluster) SetRTT(d time.Duration) { c.slow.oneWay.Store(int64(d / 2)) }

// Leader returns the number of the member that leads, -1 if none says so.
func (c *Cluster) Leader() int {
	for i, n := range c.nodes {
		if n.Leader() == n.ID() {
			return i
		}
	}
	return -1
}

// Close stops the members.
func (c *Cluster) Close() error {
	c.SetRTT(0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no member needs to take over
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Stop(ctx))
	}
	errs = append(errs, c.slow.close())
	return errors.Join(errs...)
}
