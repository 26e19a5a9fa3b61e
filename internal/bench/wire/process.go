package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leaderlease/go/internal/procs"
)

// ClusterOptions describe a cluster of processes.
type ClusterOptions struct {
	Program procs.Program
	// Dir holds a data directory and a log per member.
	Dir  string
	Size int
	// Flags are given to each member in addition.
	Flags []string
}

// Cluster is a cluster of server processes on loopback.
type Cluster struct {
	Endpoints []string
	procs     *procs.Cluster
}

const startTimeout = 30 * time.Second

// StartCluster starts the members and waits until all agree on a leader.
func StartCluster(ctx context.Context, opts ClusterOptions) (*Cluster, error) {
	p, err := procs.New(procs.Config{Program: opts.Program, Dir: opts.Dir, Size: opts.Size, Token: "leasebench", Flags: opts.Flags})
	if err != nil {
		return nil, err
	}
	c := &Cluster{Endpoints: p.Endpoints(), procs: p}
	if err := p.Start(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := Find(ctx, c.Endpoints); err != nil {
		return nil, errors.Join(fmt.Errorf("start %d members of %s: %w\n%s", opts.Size, opts.Program.Name, err, c.logTail()), c.Close())
	}
	return c, nil
}

// PIDs returns the numbers of the members' processes.
func (c *Cluster) PIDs() (all []int) {
	for _, m := range c.procs.Members() {
		all = append(all, m.PID())
	}
	return all
}

// Close kills all members and waits for them.
func (c *Cluster) Close() error { return c.procs.Kill() }

// logTail returns the ends of the members' logs.
func (c *Cluster) logTail() string {
	var all []string
	for _, m := range c.procs.Members() {
		all = append(all, m.LogTail())
	}
	return strings.Join(all, "\n")
}
