// Package testcluster runs the members of a cluster as processes on loopback: kvnode,
// or etcd, which takes the same flags. Each member has a directory, ports and a
// log of its own, and can be stopped, killed, paused, woken, restarted and wiped.
// The demo, the benchmarks and the end-to-end tests start members with it.
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

// Program is a server that takes etcd's flags.
type Program struct {
	Name string
	Path string   // of the binary
	Args []string // in front of the flags
	// Supervised says that Path is a supervisor that runs the member as a child process.
	Supervised bool
}

// Config describes a cluster.
type Config struct {
	Program Program
	// Dir holds a data directory per member.
	Dir string
	// LogDir holds a log per member. Default: Dir.
	LogDir string
	// Size is the number of members. Default: 3.
	Size int
	// Prefix of the names; a number follows. Default: m.
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
	// Own returns additional flags for one member. Default: none.
	Own func(*Member) []string
	// Died receives a member when its process ends unexpectedly. Its buffer must have room for
	// all members. Default: nil.
	Died chan<- *Member
}

// Cluster is a set of members. It is not safe for use by several goroutines,
// but different goroutines may use different members.
type Cluster struct {
	cfg     Config
	members []*Member
}

// New chooses names, directories and free ports. It starts nothing.
func New(cfg Config) (*Cluster, error) {
	cfg.Size = cmp.Or(cfg.Size, 3)
	cfg.LogDir = cmp.Or(cfg.LogDir, cfg.Dir)
	cfg.Prefix = cmp.Or(cfg.Prefix, "m")
	c := &Cluster{cfg: cfg}
	ports, err := freeAddrs(perMember * cfg.Size)
	if err != nil {
		return nil, err
	}
	for i, host := range cfg.Hosts { // no other process uses these addresses, so the ports are free
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

// add appends a member without flags.
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
		m.TLS.InsecureSkipVerify = true // --auto-tls certificates are self-signed
	}
	c.members = append(c.members, m)
}

// flags returns the flags of member m.
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
			_ = r.kill() // Kill below tries again and waits
		}
	}
	for _, m := range c.members {
		errs = append(errs, m.Kill())
	}
	return errors.Join(errs...)
}

// Join appends a member that joins the running cluster after MemberAdd. If a member of that name exists
// and does not run, the new member replaces it and takes its addresses.
func (c *Cluster) Join(name string) (*Member, error) {
	i := slices.IndexFunc(c.members, func(m *Member) bool { return m.Name == name })
	if i >= 0 && c.members[i].Running() {
		return nil, fmt.Errorf("join as %s: that member runs", name)
	}
	if i < 0 {
		ports, err := freeAddrs(perMember)
		if err != nil {
			return nil, err
		}
		i = len(c.members)
		c.add(name, ports)
	}
	m := c.members[i]
	flags := slices.Concat(c.flags(m), c.cfg.Flags)
	flags[slices.Index(flags, "--initial-cluster-state=new")] = "--initial-cluster-state=existing"
	m.Flags = flags
	return m, nil
}

// Forget deletes a member that does not run from the cluster.
func (c *Cluster) Forget(name string) {
	c.members = slices.DeleteFunc(c.members, func(m *Member) bool { return m.Name == name && !m.Running() })
}
