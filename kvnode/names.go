package kvnode

import (
	"fmt"
	"strings"

	"github.com/leaderlease/go/kvnode/internal/loglimit"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// Shown returns what others have said, such as the name of a member, fit for terminals and
// logs: in one line, not long, and quoted if a terminal would act upon it.
func Shown(s string) string { return transport.Shown(s) }

// describe names a member for people.
func describe(m *store.Member) string {
	name := Shown(m.Name)
	if name == "" {
		name = transport.ID(m.ID)
	}
	return fmt.Sprintf("%s (%s)", name, transport.ShownUpTo(strings.Join(m.PeerURLs, ", "), 4*transport.MaxNameBytes))
}

// called names a member by its name and ID, which other tools show.
func (b *book) called(id uint64) string {
	if m, ok := b.memberOf(id); ok && m.Name != "" {
		return labelled(m.Name, id)
	}
	if id == 0 {
		return "none"
	}
	return transport.ID(id)
}

// labelled is the form that members have in log lines: the name, which an operator
// has given, and the ID in hexadecimal, which etcdctl member list shows.
func labelled(name string, id uint64) string {
	return fmt.Sprintf("%s (%s)", Shown(name), transport.ID(id))
}

// nameOf names a member for people, by its ID if nothing else is known.
func (b *book) nameOf(id uint64) string {
	if m, ok := b.memberOf(id); ok {
		return describe(&m)
	}
	return transport.ID(id)
}

// memberOf returns a member as it is registered or, before the registry knows it,
// as it was when this one began.
func (b *book) memberOf(id uint64) (store.Member, bool) {
	m, ok := b.store.Members().ByID[id]
	if ok && m.Name != "" {
		return m, true
	}
	for _, first := range b.first {
		if first.ID == id {
			return first, true
		}
	}
	return m, ok
}

// names returns the names of all members.
func (b *book) names() map[uint64]string {
	names := make(map[uint64]string)
	for _, m := range b.first {
		names[m.ID] = m.Name
	}
	for id, m := range b.store.Members().ByID {
		if m.Name != "" {
			names[id] = m.Name
		}
	}
	return names
}

// logLimits limit the log lines about each peer, one limit for each condition that may persist.
type logLimits struct {
	dropped, moved, parameters, disk, refused loglimit.PerPeer
	died                                      loglimit.PerPeer // death notices that void no promise
}
