package membership

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// maxCallers limits the unregistered peers that a member dials, because any program in the network can claim many
// IDs. Above it, a new one replaces the oldest.
const maxCallers = 16

// Links are the connections to the peers. *transport.Transport implements it.
type Links interface {
	SetPeer(id uint64, addrs []string)
	RemovePeer(id uint64)
	Peers() []transport.PeerStatus
}

// RoutesConfig configures Routes.
type RoutesConfig struct {
	List  *List
	Links Links
	// Certificates is set if peers prove their IDs by certificates.
	Certificates bool
	// Changed is called after each change of the links. It must not block.
	Changed func()
	// FoundsAlone is set if this member, started with its present configuration and an empty data directory, would
	// found a cluster of one.
	FoundsAlone bool
	Log         *slog.Logger
}

// Routes tells the transport where to dial each member. It has links to the registered members, and to accepted peers
// that are unregistered or that name other URLs than the registry has. One lock covers both reading the registry and
// changing the links, so the last change is always made with the newest registry, and a removed member has no link.
type Routes struct {
	cfg     RoutesConfig
	advised sync.Once // adviseAlone
	mu      struct {
		sync.Mutex
		callers []caller // oldest first
	}
}

// caller is an accepted peer with URLs that this member knows only from the peer's hello: the peer was added, or has
// moved, while this member was away. It may be the leader, which this member can answer only over a link of its own.
type caller struct {
	id   uint64
	urls []string
}

// NewRoutes returns Routes that have not changed any link yet.
func NewRoutes(cfg RoutesConfig) *Routes { return &Routes{cfg: cfg} }

// RegistryChanged updates the links after a change of the registry.
func (r *Routes) RegistryChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updateLocked()
	members := r.cfg.List.registry.Members()
	for id := range members.Removed {
		r.cfg.Links.RemovePeer(id)
	}
	r.adviseAlone(len(members.ByID))
}

// RecordURLs records the URLs in the hello of an accepted peer, if this member does not know them. It returns the
// IDs of unregistered peers that have no link afterwards, so that RollbackDetector can forget them.
func (r *Routes) RecordURLs(id uint64, urls []string) (forgotten []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	members := r.cfg.List.Known()
	if !isNews(members, &caller{id, urls}) {
		if _, registered := members.Registered(id); registered || r.isCallerLocked(id) {
			return nil
		}
		return []uint64{id} // an unregistered peer with an invalid URL gets no link
	}
	if slices.ContainsFunc(r.mu.callers, func(c caller) bool { return c.id == id && slices.Equal(c.urls, urls) }) {
		return nil
	}
	r.forgetLocked(id)
	r.mu.callers = append(r.mu.callers, caller{id, urls})
	// Registered callers do not count towards the limit and stay. They are few, and one that stays connected would
	// not send its hello again after it was dropped.
	var unregistered []uint64
	for _, c := range r.mu.callers {
		if _, registered := members.Registered(c.id); !registered {
			unregistered = append(unregistered, c.id)
		}
	}
	if len(unregistered) > maxCallers {
		forgotten = unregistered[:1]
		r.forgetLocked(forgotten[0])
	}
	r.updateLocked()
	return forgotten
}

// Disconnected removes the link to a peer that has closed its connections, unless the peer is registered. It reports
// whether it did.
func (r *Routes) Disconnected(id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.List.isRegistered(id) {
		return false
	}
	r.forgetLocked(id)
	r.updateLocked()
	return true
}

// Believes reports whether this member may stop because peer says that it was removed or wiped. The peer must be
// registered. Without certificates any program can claim the peer's ID, so the peer's URLs must also be those in the
// registry or the configuration.
func (r *Routes) Believes(peer uint64) bool {
	if !r.cfg.List.isRegistered(peer) {
		return false
	}
	if r.cfg.Certificates {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.isCallerLocked(peer)
}

func (r *Routes) isCallerLocked(id uint64) bool {
	return slices.ContainsFunc(r.mu.callers, func(c caller) bool { return c.id == id })
}

func (r *Routes) forgetLocked(id uint64) {
	r.mu.callers = slices.DeleteFunc(r.mu.callers, func(c caller) bool { return c.id == id })
}

// updateLocked sets the links to the registered members and the callers, and removes all others.
func (r *Routes) updateLocked() {
	members := r.cfg.List.Known()
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
	delete(urls, r.cfg.List.self)
	for id, at := range urls {
		r.cfg.Links.SetPeer(id, peerurl.HostPorts(at))
	}
	for _, p := range r.cfg.Links.Peers() {
		if _, ok := urls[p.ID]; !ok {
			r.cfg.Links.RemovePeer(p.ID)
		}
	}
	r.cfg.Changed()
}

// isNews reports whether Routes needs c: its ID was not removed, its URLs are valid, and it is either unregistered or
// names a URL that this member does not know.
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

// adviseAlone warns once if the cluster has grown from one member, and the configuration still describes that one.
func (r *Routes) adviseAlone(members int) {
	if members < 2 || !r.cfg.FoundsAlone {
		return
	}
	r.advised.Do(func() {
		r.cfg.Log.Warn("if this member loses its data directory, its configuration makes it found a cluster of one again, beside the others; "+
			"from its next start on, give it Config.Existing and all members in Config.Cluster",
			"members", members)
	})
}
