package bench

import (
	"context"
	"errors"
	"sync"

	"github.com/leaderlease/go/internal/bench/load"
)

// Node returns a client of the node numbered i, from 0, for any number of
// goroutines. All keys are the one register.
func (c *Cluster) Node(i int) load.Client {
	return c.nodes[i].process.Guard(nodeClient{c.nodes[i]})
}

type nodeClient struct{ *node }

// Read implements load.Client.
func (n nodeClient) Read(ctx context.Context, _ int) (load.Seen, error) {
	version, err := n.read(ctx)
	return load.Seen{Version: version}, err
}

// Write implements load.Client.
func (n nodeClient) Write(ctx context.Context, _ int) (uint64, error) { return n.write(ctx) }

// ErrNoNetwork says that only a cluster with Options.Network can be cut.
var ErrNoNetwork = errors.New("bench: the cluster has no network that can be cut")

// Kill ends node i at once: its connections are closed.
func (c *Cluster) Kill(i int) error {
	n := c.nodes[i]
	n.process.Kill()
	n.kill()
	var errs []error
	for _, l := range c.links {
		if l.inbox == n.inbox {
			errs = append(errs, l.conn.Close())
		}
	}
	return errors.Join(errs...)
}

// Pause stops node i, as SIGSTOP does: it takes, sends and answers nothing, and
// its connections stay.
func (c *Cluster) Pause(i int) error {
	c.nodes[i].process.Pause()
	c.nodes[i].pause()
	return nil
}

// Cut holds everything between node i and the others. Clients still reach it.
func (c *Cluster) Cut(i int) error {
	if c.opts.Network == nil {
		return ErrNoNetwork
	}
	for j := range c.nodes {
		if j != i {
			c.opts.Network.Cut(Host(i), Host(j))
		}
	}
	return nil
}

// Transfer hands leadership from node i to the next one.
func (c *Cluster) Transfer(i int) error {
	c.nodes[i].transfer <- c.nodes[(i+1)%len(c.nodes)].id
	return nil
}

// Leader returns the number of the node that leads, -1 if there is none.
func (c *Cluster) Leader() int {
	for i, n := range c.nodes {
		if n.leads.Load() {
			return i
		}
	}
	return -1
}

// pausing holds the raft loop of a paused node.
type pausing struct {
	mu      sync.Mutex
	resumed chan struct{} // nil unless paused
}

func (n *node) pause() {
	n.pausing.mu.Lock()
	defer n.pausing.mu.Unlock()
	if n.pausing.resumed == nil {
		n.pausing.resumed = make(chan struct{})
	}
}

func (n *node) resume() {
	n.pausing.mu.Lock()
	defer n.pausing.mu.Unlock()
	if n.pausing.resumed != nil {
		close(n.pausing.resumed)
		n.pausing.resumed = nil
	}
}

func (p *pausing) wait(ctx context.Context) {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	if resumed == nil {
		return
	}
	select {
	case <-resumed:
	case <-ctx.Done():
	}
}
