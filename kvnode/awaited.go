package kvnode

import (
	"fmt"
	"strings"

	"github.com/leaderlease/go/kvnode/store"
)

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
		return fmt.Sprintf("%s (%x)", Shown(m.Name), id)
	}
	if id == 0 {
		return "none"
	}
	return fmt.Sprintf("%x", id)
}

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
