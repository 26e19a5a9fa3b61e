package testcluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	// Prefix is what names begin with, a number follows. Default: m.
	Prefix string
	// Token tells clusters of equal members apart.
	Token string
	// Hosts are the members' IP addresses. Default: all are on loopback.
	Hosts []string
	// AutoTLS gives members certificates that they make themselves, for clients and for
	// each other.
	AutoTLS bool
	// Flags are given to each member after the cluster's own.
	Flags []string
	// Own returns flags for one member alone, in addition. Default: none.
	Own func(*Member) []string
	// Died is told when a process ends that was not asked to. It must have room
	// for all that can. Default: nobody is told.
	Died chan<- *Member
}

// Cluster is a set of members. It is not safe for use by several goroutines,
// but different goroutines may use different members.
type Cluster struct {
	cfg     Config
	members []*Member
}

// New lays a cluster out: names, directories and free ports. It starts nothing.
func New(cfg Config) (*Cluster, error) {
	cfg.Size = cmp.Or(cfg.Size, 3)
	cfg.LogDir = cmp.Or(cfg.LogDir, cfg.Dir)
	cfg.Prefix = cmp.Or(cfg.Prefix, "m")
	c := &Cluster{cfg: cfg}
	ports, err := freeAddrs(perMember * cfg.Size)
	if err != nil {
		return nil, err
	}
	for i, host := range cfg.Hosts { // nobody else is there, so the ports are free
		for j, addr := range ports[perMember*i : perMember*(i+1)] {
			ports[perMember*i+j] = net.JoinHostPort(host, addr[strings.LastIndexByte(addr, ':')+1:])
		}
	}
	for i := range cfg.Size {
		c.add(fmt.Sprint(cfg.Prefix, i+1), ports[perMember*i:])
	}
	for _, m := range c.members {
		m.Flags = slices.Concat(c.flags(m), cfg.Flags)
	}
	return c, nil
}

// perMember is the number of ports of a member.
const perMember = 2

// add lays a member out without its flags.
func (c *Cluster) add(name string, ports []string) {
	m := &Member{
		Name:     name,
		Dir:      filepath.Join(c.cfg.Dir, name),
		LogFile:  filepath.Join(c.cfg.LogDir, name+".log"),
		Endpoint: ports[0],
		Peer:     ports[1],
		Program:  c.cfg.Program,
		died:     c.cfg.Died,
	}
	if c.cfg.AutoTLS {
		m.TLS = new(tls.Config)
		m.TLS.InsecureSkipVerify = true // nobody has signed such a certificate
	}
	c.members = append(c.members, m)
}

// flags returns what makes a process the member m.
func (c *Cluster) flags(m *Member) []string {
	var initial []string
	scheme := "http://"
	if c.cfg.AutoTLS {
		scheme = "https://"
	}
	for _, p := range c.members {
		initial = append(initial, fmt.Sprintf("%s=%s%s", p.Name, scheme, p.Peer))
	}
	flags := []string{
		"--name=" + m.Name,
		"--data-dir=" + m.Dir,
		"--listen-client-urls=" + scheme + m.Endpoint,
		"--advertise-client-urls=" + scheme + m.Endpoint,
		"--listen-peer-urls=" + scheme + m.Peer,
		"--initial-advertise-peer-urls=" + scheme + m.Peer,
		"--initial-cluster=" + strings.Join(initial, ","),
		"--initial-cluster-state=new",
		"--initial-cluster-token=" + c.cfg.Token,
	}
	if c.cfg.AutoTLS {
		flags = append(flags, "--auto-tls", "--peer-auto-tls")
	}
	if c.cfg.Own != nil {
		flags = append(flags, c.cfg.Own(m)...)
	}
	return flags
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

// Start starts all members that do not run and does not wait until they serve.
func (c *Cluster) Start() error {
	for _, m := range c.members {
		if m.Running() {
			continue
		}
		if err := m.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Serve starts all members that do not run and waits until each serves.
func (c *Cluster) Serve(ctx context.Context) error {
	if err := c.Start(); err != nil {
		return err
	}
	for _, m := range c.members {
		if err := m.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops all members in order, at the same time.
func (c *Cluster) Stop() error {
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { errs[i] = m.Stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Kill kills all members at once, as a power cut would.
func (c *Cluster) Kill() error {
	var errs []error
	for _, m := range c.members {
		if r := m.current(); r != nil {
			_ = r.kill() // which is tried, and waited for, below
		}
	}
	for _, m := range c.members {
		errs = append(errs, m.Kill())
	}
	return errors.Join(errs...)
}
