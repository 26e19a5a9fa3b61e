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

// book is what a member knows of the members, itself among them: who is one, where they
// are and what they are called.
type book struct {
	vouchers

	self  uint64
	name  string
	first []store.Member // as they were when the data directory was made
	store *store.Store
}

// peer returns what this member believes of another one. The error is a
// *transport.Refusal.
func (b *book) peer(id uint64) (store.Member, error) {
	if b.store.Members().Removed[id] {
		return store.Member{}, &transport.Refusal{Reason: transport.ReasonRemoved, Text: fmt.Sprintf("member %x was removed from the cluster", id)}
	}
	if m, ok := b.believed(id); ok {
		return m, nil
	}
	b.askAround()
	return store.Member{}, &transport.Refusal{Reason: transport.ReasonUnknown, Text: fmt.Sprintf(
		"member %x is not known to %s (%x), which asks the members that it knows; if all of these were replaced while it was away, start %[2]s "+
			"with Config.Cluster naming the present ones, or remove it and add it anew", id, b.name, b.self)}
}

// believed returns a member that is known, or that somebody vouches for. Where it is
// known to be comes first; behind that is where those say that it has moved to who
// have applied more.
func (b *book) believed(id uint64) (store.Member, bool) { return b.believedBy(id, true) }

// believedBy is believed, with or without those whom Config.Cluster alone names.
func (b *book) believedBy(id uint64, flags bool) (store.Member, bool) {
	m, known := b.familiar(id)
	if !known && b.store.Members().Removed[id] {
		return m, false
	}
	told, vouched := b.named(id, b.store.Applied(), known, flags)
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
func (b *book) familiar(id uint64) (store.Member, bool) {
	members := b.store.Members()
	if m, ok := members.ByID[id]; ok || members.Removed[id] {
		return m, ok
	}
	if i := slices.IndexFunc(b.first, func(m store.Member) bool { return m.ID == id }); i >= 0 {
		return b.first[i], true
	}
	return store.Member{}, false
}

// known are all for whom nobody needs to vouch.
func (b *book) known() []store.Member {
	members := b.store.Members()
	known := sortedMembers(members)
	for _, m := range b.first {
		if _, ok := members.ByID[m.ID]; !ok && !members.Removed[m.ID] {
			known = append(known, m)
		}
	}
	return known
}

// hasSay reports whether this member ends because another one tells it to: not on the
// word of one that is not registered yet, or that only Config.Cluster has led to.
func (b *book) hasSay(id uint64) bool {
	m, known := b.familiar(id)
	return known && !b.flagged(&m)
}

// isFlagged reports whether a member is believed, or believed to be at some address,
// on the word alone of those whom Config.Cluster names.
func (b *book) isFlagged(id uint64) bool {
	without, known := b.believedBy(id, false)
	with, vouched := b.believed(id)
	return known != vouched || len(without.PeerURLs) < len(with.PeerURLs)
}
