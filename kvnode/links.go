package kvnode

import (
	"slices"
	"sync"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// maxCallers bounds the unregistered peers that this member dials because their hello said where they are. The oldest
// one gives way.
const maxCallers = 16

// routes directs the links to the registered members, and to accepted peers that the registry does not have, or has
// elsewhere. All changes of links are made under mu with the registry as it is then, so the last one has seen the
// newest, and no link to a removed member is left.
type routes struct {
	*parts
	advised sync.Once // of adviseAlone
	mu      struct {
		sync.Mutex
		callers []caller // oldest first
	}
}

// caller is an accepted peer with URLs that this member knows from the peer's hello alone: it was added, or has moved,
// while this member was away. It may be the leader, and without a link back this member could not answer it.
type caller struct {
	id   uint64
	urls []string
}

// connect is called when the registry has changed.
func (r *routes) connect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follow()
	members := r.store.Members()
	for id := range members.Removed {
		r.links.RemovePeer(id)
	}
	r.adviseAlone(members)
}

// called notes where an accepted peer says that it is, if this member does not know that. It returns the IDs of which
// nothing is to be kept because of that: they are not registered, and this member has no link to them.
func (r *routes) called(id uint64, urls []string) (gone []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	members := r.book.members()
	if !isNews(members, &caller{id, urls}) {
		if _, registered := members.Registered(id); registered || r.hasCaller(id) {
			return nil
		}
		return []uint64{id} // it names no valid URL
	}
	if slices.ContainsFunc(r.mu.callers, func(c caller) bool { return c.id == id && slices.Equal(c.urls, urls) }) {
		return nil
	}
	r.forget(id)
	r.mu.callers = append(r.mu.callers, caller{id, urls})
	// Registered ones are few, and may stay connected: they would not say again where they are.
	var unregistered []uint64
	for _, c := range r.mu.callers {
		if _, registered := members.Registered(c.id); !registered {
			unregistered = append(unregistered, c.id)
		}
	}
	if len(unregistered) > maxCallers {
		gone = unregistered[:1]
		r.forget(gone[0])
	}
	r.follow()
	return gone
}

// left ends the link to a peer that has ended its connections, unless it is registered, and reports whether it did.
func (r *routes) left(id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, registered := r.book.members().Registered(id); registered {
		return false
	}
	r.forget(id)
	r.follow()
	return true
}

// isCaller reports whether this member may have reached a peer only because the peer's hello said where it is.
func (r *routes) isCaller(id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasCaller(id)
}

// hasCaller is called with mu locked, as are forget and follow.
func (r *routes) hasCaller(id uint64) bool {
	return slices.ContainsFunc(r.mu.callers, func(c caller) bool { return c.id == id })
}

func (r *routes) forget(id uint64) {
	r.mu.callers = slices.DeleteFunc(r.mu.callers, func(c caller) bool { return c.id == id })
}

func (r *routes) follow() {
	members := r.book.members()
	r.mu.callers = slices.DeleteFunc(r.mu.callers, func(c caller) bool { return !isNews(members, &c) })
	urls := make(map[uint64][]string)
	for _, m := range members.All() {
		urls[m.ID] = members.URLs(&m)
	}
	for _, c := range r.mu.callers {
		for _, u := range c.urls {
			if !slices.Contains(urls[c.id], u) {
				urls[c.id] = append(urls[c.id], u)
			}
		}
	}
	delete(urls, r.book.self)
	for id, at := range urls {
		r.links.SetPeer(id, peerurl.HostPorts(at))
	}
	for _, p := range r.links.Peers() {
		if _, ok := urls[p.ID]; !ok {
			r.links.RemovePeer(p.ID)
		}
	}
	r.entrust()
}

// isNews reports whether a peer says that it is where this member does not know it to be.
func isNews(members *admission.Members, c *caller) bool {
	m, registered := members.Registered(c.id)
	switch {
	case members.Registry.Removed[c.id], peerurl.Check(c.urls) != nil:
		return false
	case !registered:
		return true
	default:
		return !peerurl.AreAmong(c.urls, members.URLs(&m))
	}
}

// counts reports whether this member ends because a peer says that it was removed or wiped: the peer must be
// registered. Without certificates it must be where this member knows it to be as well, as any program can claim its
// ID.
func (r *routes) counts(peer uint64) bool {
	_, registered := r.book.members().Registered(peer)
	return registered && (r.cfg.requiresCertificates() || !r.isCaller(peer))
}

// adviseAlone logs once that the configuration of a member would found a cluster again although the member is not alone
// any more.
func (r *routes) adviseAlone(members *store.Members) {
	if len(members.ByID) < 2 || len(r.cfg.Cluster) > 1 || r.cfg.Existing {
		return
	}
	r.advised.Do(func() {
		r.log.Warn("if this member loses its data directory, its configuration makes it found a cluster of one again, beside the others; "+
			"from its next start on, give it Config.Existing and all members in Config.Cluster",
			"members", len(members.ByID))
	})
}
