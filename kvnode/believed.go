package kvnode

import (
	"fmt"
	"slices"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/transport"
)

// A member that was away may be called by one that was added, or has moved, meanwhile.
// What that one says of itself anybody can say, so it is let in only if somebody
// vouches for it: a member that this one knows, asked at an address where it is
// registered (docs/adr/0015-vouching.md).

// peer returns what this member believes of another one. The error is a
// *transport.Refusal.
func (n *Node) peer(id uint64) (store.Member, error) {
	if n.store.Members().Removed[id] {
		return store.Member{}, &transport.Refusal{Reason: transport.ReasonRemoved, Text: fmt.Sprintf("member %x was removed from the cluster", id)}
	}
	if m, ok := n.believed(id); ok {
		return m, nil
	}
	n.askAround()
	return store.Member{}, &transport.Refusal{Reason: transport.ReasonUnknown, Text: fmt.Sprintf(
		"member %x is not known to %s (%x), which asks the members that it knows; if all of these were replaced while it was away, start %[2]s "+
			"with --initial-cluster naming the present ones, or remove it and add it anew", id, n.Name(), n.ID())}
}

// believed returns a member that is known, or that somebody vouches for. Where it is
// known to be comes first; behind that is where those say that it has moved to who
// have applied more.
func (n *Node) believed(id uint64) (store.Member, bool) { return n.believedBy(id, true) }

// believedBy is believed, with or without those whom --initial-cluster alone names.
func (n *Node) believedBy(id uint64, flags bool) (store.Member, bool) {
	m, known := n.familiar(id)
	if !known && n.store.Members().Removed[id] {
		return m, false
	}
	told, vouched := n.vouchers.named(id, n.store.Applied(), known, flags)
	if !known {
		return told, vouched
	}
	for _, u := range told.PeerURLs {
		if !slices.Contains(m.PeerURLs, u) {
			m.PeerURLs = append(slices.Clip(m.PeerURLs), u)
		}
	}
	return m, true
}

// familiar returns a member for whom nobody needs to vouch. The registry comes first;
// what there was when this one began is for as long as the registry lags behind that.
func (n *Node) familiar(id uint64) (store.Member, bool) {
	members := n.store.Members()
	if m, ok := members.ByID[id]; ok || members.Removed[id] {
		return m, ok
	}
	if i := slices.IndexFunc(n.id.Members, func(m store.Member) bool { return m.ID == id }); i >= 0 {
		return n.id.Members[i], true
	}
	return store.Member{}, false
}

// knownMembers are all for whom nobody needs to vouch.
func (n *Node) knownMembers() []store.Member {
	members := n.store.Members()
	known := sortedMembers(members)
	for _, m := range n.id.Members {
		if _, ok := members.ByID[m.ID]; !ok && !members.Removed[m.ID] {
			known = append(known, m)
		}
	}
	return known
}

// hasSay reports whether this member ends because another one tells it to: not on the
// word of one that is not registered yet, or that only --initial-cluster has led to.
func (n *Node) hasSay(id uint64) bool {
	m, known := n.familiar(id)
	return known && !n.vouchers.flagged(&m)
}
