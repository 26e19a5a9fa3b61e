package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/internal/testcluster"
)

// Options describe a cluster.
type Options struct {
	Program testcluster.Program
	Size    int
	// TLS makes the members create their own certificates.
	TLS   bool
	Needs Needs
	// Dir holds the members' data and logs.
	Dir string
	// Number is different for each cluster that runs at the same time, from 0 on.
	Number int
}

// Cluster is a cluster of processes. Its leader dies and comes back.
type Cluster struct {
	*testcluster.Cluster
	cables *cables
	disks  []*disk
}

// Start starts the members and waits until they agree on a leader.
func Start(ctx context.Context, opts Options) (c *Cluster, err error) {
	c = &Cluster{}
	cfg := testcluster.Config{Program: opts.Program, Dir: opts.Dir, Size: opts.Size, Token: "leasebench", AutoTLS: opts.TLS}
	if opts.Needs == Cables {
		if c.cables, err = newCables(opts.Number, opts.Size); err != nil {
			return nil, err
		}
		cfg.Hosts = c.cables.hosts()
	}
	if c.Cluster, err = testcluster.New(cfg); err != nil {
		return nil, err
	}
	for i, m := range c.Members() {
		if c.cables != nil {
			m.Program = c.cables.program(i, opts.Program)
		}
		if opts.Needs == Disks {
			d, err := newDisk(filepath.Join(opts.Dir, fmt.Sprintf("disk%d", i)), m.Dir)
			if err != nil {
				return nil, errors.Join(err, c.Close())
			}
			c.disks = append(c.disks, d)
		}
	}
	if err := c.Cluster.Start(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	err = c.gather(ctx)
	for _, d := range c.disks {
		err = errors.Join(err, d.sync())
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close kills the members, and removes their networks and disks.
func (c *Cluster) Close() error {
	err := c.Kill()
	for _, d := range c.disks {
		err = errors.Join(err, d.close())
	}
	if c.cables != nil {
		err = errors.Join(err, c.cables.close())
	}
	return err
}

// restore undoes the death, and waits until the members agree on a leader.
func (c *Cluster) restore(ctx context.Context) error {
	for i, m := range c.Members() {
		if c.cables != nil {
			if err := c.cables.plug(i); err != nil {
				return err
			}
		}
		if len(c.disks) > 0 && c.disks[i].failed {
			if err := errors.Join(m.Kill(), c.disks[i].repair()); err != nil {
				return err
			}
		}
	}
	if err := c.Cluster.Start(); err != nil {
		return err
	}
	return c.gather(ctx)
}

const (
	agreeTimeout = 30 * time.Second
	// rest is how long members run undisturbed once they agree, so that a member that has
	// come back can catch up.
	rest = 400 * time.Millisecond
)

// gather waits until all members name one leader, and then for rest.
func (c *Cluster) gather(ctx context.Context) error {
	if _, err := c.agreed(ctx); err != nil {
		return err
	}
	return durations.Sleep(ctx, rest)
}

// agreed waits until all members name one leader, and returns its number.
func (c *Cluster) agreed(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, agreeTimeout)
	defer cancel()
	roles, err := Find(ctx, c.Members()[0].TLS, c.Endpoints())
	if err != nil {
		return 0, fmt.Errorf("%d members do not agree on a leader: %w\n%s", len(c.Members()), err, c.Members()[0].LogTail())
	}
	return slices.Index(c.Endpoints(), roles.Leader), nil
}
