package testcluster

import (
	"fmt"
	"slices"
)

// Join lays out a member that joins the cluster instead of making it, once the
// others have been told of it. Its name must not be that of a member already,
// unless that one does not run: then the new one takes its place and its
// addresses.
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

// Forget removes a member that does not run from the layout.
func (c *Cluster) Forget(name string) {
	c.members = slices.DeleteFunc(c.members, func(m *Member) bool { return m.Name == name && !m.Running() })
}
