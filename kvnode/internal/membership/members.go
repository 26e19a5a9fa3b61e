// Package membership changes the members of a cluster, and decides how one member deals with the others: where it
// dials them, which of them it accepts, and which of their refusals make it stop.
//
// kvnode.Node creates the types below and passes events to them: a request of a client, an applied change, the hello
// of a peer, a refusal by a peer. None of them touches raft. OwnAdmission belongs to the raft loop. The others are safe
// for concurrent use.
//
//   - Changer adds, promotes, updates and removes members.
//   - PlanEntry decides what a configuration change in the log does to raft's configuration and to the registry. It
//     is pure, so all members decide alike, and package restore applies a log with it, without raft.
//   - RemovalAcks stops this member after its removal, once the others can do without its vote.
//   - OwnAdmission lets this member take part once enough others have accepted it.
//   - DataLoss stops this member when a peer shows that this member has lost data.
//   - Gate accepts or refuses a peer that connects. It applies the rules of package admission, then compares the
//     peer's data directory with what Instances and RollbackDetector know about it.
//   - Routes keeps the transport's links in step with the registry.
//   - Joiner finds the identity of a new member in an existing cluster.
//   - List is what this member knows about the members, and names them in log lines.
//
// Three invariants hold:
//
//   - A change that was acknowledged survives a crash of all members, and after a removal the remaining members can
//     elect a leader without the removed one.
//   - A removed member has no link.
//   - A process with a data directory that was wiped, or that lacks what its member has acknowledged, is refused
//     by each member that can tell, before raft sees a message of that process.
package membership

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// Registry is the replicated list of members. *store.Store implements it.
type Registry interface {
	Members() *store.Members
}

// List is what a member knows about the members of its cluster, itself included.
type List struct {
	self       uint64
	initial    []store.Member     // as of the creation of the data directory
	configured []memberdir.Member // Config.Cluster
	registry   Registry
}

// NewList returns the list of the member self. initial are the members as they were when its data directory was
// created. configured is the initial cluster of its configuration.
func NewList(self uint64, initial []store.Member, configured []memberdir.Member, registry Registry) *List {
	return &List{self: self, initial: initial, configured: configured, registry: registry}
}

// Known returns the list for the rules of package admission, as of now.
func (l *List) Known() *admission.Members {
	return &admission.Members{Registry: l.registry.Members(), AtCreation: l.initial, Configured: l.configured}
}

// isRegistered reports whether a member is registered now.
func (l *List) isRegistered(id uint64) bool {
	_, registered := l.Known().Registered(id)
	return registered
}

// Label returns a member's name and ID for a log line. The ID is in hexadecimal, as "etcdctl member list" prints it.
func (l *List) Label(id uint64) string {
	if m, ok := l.find(id); ok && m.Name != "" {
		return label(m.Name, id)
	}
	if id == 0 {
		return "none"
	}
	return transport.ID(id)
}

func label(name string, id uint64) string {
	return fmt.Sprintf("%s (%s)", transport.Shown(name), transport.ID(id))
}

// Describe returns a member's name and peer URLs for operators, or its ID if it is unknown.
func (l *List) Describe(id uint64) string {
	if m, ok := l.find(id); ok {
		return describe(&m)
	}
	return transport.ID(id)
}

func describe(m *store.Member) string {
	name := transport.Shown(m.Name)
	if name == "" {
		name = transport.ID(m.ID)
	}
	return fmt.Sprintf("%s (%s)", name, transport.ShownUpTo(strings.Join(m.PeerURLs, ", "), 4*transport.MaxNameBytes))
}

// find returns a member from the registry or, until an initial member has registered its name, from initial.
func (l *List) find(id uint64) (store.Member, bool) {
	m, ok := l.registry.Members().ByID[id]
	if ok && m.Name != "" {
		return m, true
	}
	if i := slices.IndexFunc(l.initial, func(m store.Member) bool { return m.ID == id }); i >= 0 {
		return l.initial[i], true
	}
	return m, ok
}

// Names returns names by ID, also those of removed initial members.
func (l *List) Names() map[uint64]string {
	names := make(map[uint64]string)
	for _, m := range l.initial {
		names[m.ID] = m.Name
	}
	for id, m := range l.registry.Members().ByID {
		if m.Name != "" {
			names[id] = m.Name
		}
	}
	return names
}

// Sorted returns the registered members in the order of their IDs.
func Sorted(members *store.Members) []store.Member {
	byID := func(a, b store.Member) int { return cmp.Compare(a.ID, b.ID) }
	return slices.SortedFunc(maps.Values(members.ByID), byID)
}
