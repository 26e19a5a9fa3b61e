package kvnode

import (
	"fmt"
	"strings"
	"time"

	"github.com/leaderlease/go/kvnode/store"
)

// reminder is how often a member that waits to be let in says so.
const reminder = 30 * time.Second

// Awaited returns the members of which some must let this one in before it takes
// part, by name and peer URL. It is empty once that has happened.
func (n *Node) Awaited() []string {
	if all := n.awaited.Load(); all != nil {
		return *all
	}
	return nil
}

// await makes known who has not let this member in yet.
func (c *campaigns) await(n *Node) {
	var names []string
	for _, m := range n.id.Members {
		if !c.open && m.ID != n.ID() && !c.admitted[m.ID] {
			names = append(names, describe(&m))
		}
	}
	n.awaited.Store(&names)
}

// missing is how many of the others must still let this member in.
func (c *campaigns) missing(n *Node) int {
	first := len(n.id.Members)
	return first - first/2 - len(c.admitted)
}

// remind is asked at each tick. It says once in a while what a member waits for.
func (c *campaigns) remind(n *Node) {
	if c.open || n.id.Alone || time.Since(c.reminded) < reminder {
		return
	}
	c.reminded = time.Now()
	n.log.Warn("still waits to be let in by others before it takes part", "missing", c.missing(n), "of", n.Awaited())
}

// describe names a member for people.
func describe(m *store.Member) string {
	name := Shown(m.Name)
	if name == "" {
		name = fmt.Sprintf("%x", m.ID)
	}
	return fmt.Sprintf("%s (%s)", name, shown(strings.Join(m.PeerURLs, ", "), 4*shownBytes))
}

// called names a member by its name and ID, which other tools show.
func (n *Node) called(id uint64) string {
	if m, ok := n.memberOf(id); ok && m.Name != "" {
		return labelled(m.Name, id)
	}
	if id == 0 {
		return "none"
	}
	return fmt.Sprintf("%x", id)
}

// labelled is the form that members have in log lines: the name, which an operator
// has given, and the ID in hexadecimal, which etcdctl member list shows.
func labelled(name string, id uint64) string { return fmt.Sprintf("%s (%x)", Shown(name), id) }

// nameOf names a member for people, by its ID if nothing else is known.
func (n *Node) nameOf(id uint64) string {
	if m, ok := n.memberOf(id); ok {
		return describe(&m)
	}
	return fmt.Sprintf("%x", id)
}

// memberOf returns a member as it is registered or, before the registry knows it,
// as it was when this one began.
func (n *Node) memberOf(id uint64) (store.Member, bool) {
	m, ok := n.store.Members().ByID[id]
	if ok && m.Name != "" {
		return m, true
	}
	for _, first := range n.id.Members {
		if first.ID == id {
			return first, true
		}
	}
	return m, ok
}

// names returns the names of all members.
func (n *Node) names() map[uint64]string {
	names := make(map[uint64]string)
	for _, m := range n.id.Members {
		names[m.ID] = m.Name
	}
	for id, m := range n.store.Members().ByID {
		if m.Name != "" {
			names[id] = m.Name
		}
	}
	return names
}
