package procs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Config describes a cluster.
type Config struct {
	Program Program
	// Dir holds a data directory per member.
	Dir string
	// LogDir holds a log per member. Default: Dir.
	LogDir string
	// Size is the number of members. Default: 3.
	Size int
	// Token tells clusters of equal members apart. Default: e2e.
	Token string
	// Flags are given to each member after the cluster's own.
	Flags []string
}

// Cluster is a set of members. It is not safe for use by several goroutines,
// but different goroutines may use different members.
type Cluster struct {
	cfg     Config
	members []*Member
}

// New lays a cluster out: names, directories and free ports. It starts nothing.
func New(cfg Config) (*Cluster, error) {
	if cfg.Size == 0 {
		cfg.Size = 3
	}
	if cfg.LogDir == "" {
		cfg.LogDir = cfg.Dir
	}
	if cfg.Token == "" {
		cfg.Token = "e2e"
	}
	ports, err := freePorts(2 * cfg.Size)
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg}
	for i := range cfg.Size {
		name := fmt.Sprintf("m%d", i+1)
		c.members = append(c.members, &Member{
			Name:     name,
			Dir:      filepath.Join(cfg.Dir, name),
			LogFile:  filepath.Join(cfg.LogDir, name+".log"),
			Endpoint: ports[2*i],
			Peer:     ports[2*i+1],
			Program:  cfg.Program,
		})
	}
	for _, m := range c.members {
		m.Flags = slices.Concat(c.flags(m), cfg.Flags)
	}
	return c, nil
}

// flags returns what makes a process the member m.
func (c *Cluster) flags(m *Member) []string {
	var initial []string
	for _, p := range c.members {
		initial = append(initial, fmt.Sprintf("%s=http://%s", p.Name, p.Peer))
	}
	return []string{
		"--name=" + m.Name,
		"--data-dir=" + m.Dir,
		"--listen-client-urls=http://" + m.Endpoint,
		"--advertise-client-urls=http://" + m.Endpoint,
		"--listen-peer-urls=http://" + m.Peer,
		"--initial-advertise-peer-urls=http://" + m.Peer,
		"--initial-cluster=" + strings.Join(initial, ","),
		"--initial-cluster-state=new",
		"--initial-cluster-token=" + c.cfg.Token,
	}
}

// Members returns the members in the order of their names.
func (c *Cluster) Members() []*Member { return c.members }

// Endpoints returns the client addresses, host:port, of all members.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.Endpoint)
	}
	return all
}

// Running returns the client addresses of the members whose processes exist.
func (c *Cluster) Running() []string {
	var all []string
	for _, m := range c.members {
		if m.Running() {
			all = append(all, m.Endpoint)
		}
	}
	return all
}

// Start starts all members that do not run and waits until each serves.
func (c *Cluster) Start(ctx context.Context) error {
	for _, m := range c.members {
		if m.Running() {
			continue
		}
		if err := m.Start(); err != nil {
			return err
		}
	}
	for _, m := range c.members {
		if err := m.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Kill kills all members at once, as a power cut would.
func (c *Cluster) Kill() error {
	var errs []error
	for _, m := range c.members {
		errs = append(errs, m.signalKill())
	}
	for _, m := range c.members {
		errs = append(errs, m.Kill())
	}
	return errors.Join(errs...)
}

// Wipe removes what the cluster has stored. No member may run.
func (c *Cluster) Wipe() error {
	var errs []error
	for _, m := range c.members {
		errs = append(errs, os.RemoveAll(m.Dir))
	}
	return errors.Join(errs...)
}
