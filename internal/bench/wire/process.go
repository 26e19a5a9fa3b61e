package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// Tick is the heartbeat interval, a tenth of the election timeout. 0: both are what
	// the server has by default.
	Tick time.Duration
	// Flags are given to each member in addition.
	Flags []string
}

// Cluster is a cluster of server processes on loopback.
type Cluster struct {
	Endpoints []string
	procs     *procs.Cluster
}

const (
	startTimeout  = 30 * time.Second
	electionTicks = 10
)

// StartCluster starts the members and waits until all agree on a leader.
func StartCluster(ctx context.Context, opts ClusterOptions) (*Cluster, error) {
	flags := slices.Clone(opts.Flags)
	if ms := opts.Tick.Milliseconds(); ms > 0 {
		flags = append(flags, fmt.Sprintf("--heartbeat-interval=%d", ms), fmt.Sprintf("--election-timeout=%d", electionTicks*ms))
	}
	p, err := procs.New(procs.Config{Program: opts.Program, Dir: opts.Dir, Size: opts.Size, Token: "leasebench", Flags: flags})
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

// Kill ends member i with SIGKILL.
func (c *Cluster) Kill(i int) error { return c.procs.Members()[i].Kill() }

// Pause stops member i with SIGSTOP: its memory and its sockets stay.
func (c *Cluster) Pause(i int) error { return c.procs.Members()[i].Pause() }

// ErrCannotCut says that nothing here can cut a process off.
var ErrCannotCut = errors.New("wire: processes on loopback cannot be cut off")

// Cut is not supported.
func (c *Cluster) Cut(int) error { return ErrCannotCut }

// Leader returns the number of the member that leads, -1 if they do not agree.
func (c *Cluster) Leader() int {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	roles, err := Find(ctx, c.Endpoints)
	if err != nil {
		return -1
	}
	return slices.Index(c.Endpoints, roles.Leader)
}

// Transfer hands leadership from member i to the next one.
func (c *Cluster) Transfer(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	roles, err := Find(ctx, c.Endpoints)
	if err != nil {
		return err
	}
	client, err := newClient(c.Endpoints[i])
	if err != nil {
		return err
	}
	_, err = client.MoveLeader(ctx, roles.ids[c.Endpoints[(i+1)%len(c.Endpoints)]])
	return errors.Join(err, client.Close())
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
