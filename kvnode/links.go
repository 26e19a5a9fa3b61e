package kvnode

import (
	"sync"

	"github.com/leaderlease/go/kvnode/peerurl"
)

// routes lead the links to the members of the registry, and to those whom somebody
// vouches for. All that sets or ends links looks at both anew under mu, so whoever comes
// last has seen the newest, and no link is left to a member that was removed meanwhile.
type routes struct {
	*parts
	mu      sync.Mutex
	advised sync.Once // of adviseAlone
}

// connect is called when the registry has changed.
func (r *routes) connect() {
	r.follow()
	members := r.store.Members()
	for id := range members.Removed {
		r.links.RemovePeer(id)
	}
	r.entrust()
	r.adviseAlone(members)
}

// follow leads the links to where members are believed to be, and disconnects whoever
// is not believed to be one any more. It reports whether a link depends on what others
// say.
func (r *routes) follow() (vouched bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.entrust()
	for _, m := range r.book.known() {
		if m.ID == r.book.self {
			continue
		}
		now, _ := r.book.believed(m.ID)
		vouched = vouched || len(now.PeerURLs) > len(m.PeerURLs)
		r.links.SetPeer(m.ID, peerurl.HostPorts(now.PeerURLs))
	}
	for _, p := range r.links.Peers() {
		if _, known := r.book.familiar(p.ID); known {
			continue
		}
		m, ok := r.book.believed(p.ID)
		if !ok {
			r.links.RemovePeer(p.ID)
			continue
		}
		vouched = true
		r.links.SetPeer(p.ID, peerurl.HostPorts(m.PeerURLs))
	}
	return vouched
}

// add dials a member that was added after what this one has applied: it may be
// the leader, from whom alone this member can learn that. The error is that of peer.
func (r *routes) add(id uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, err := r.book.peer(id)
	if err != nil {
		return err
	}
	r.links.SetPeer(id, peerurl.HostPorts(m.PeerURLs))
	r.entrust()
	r.book.askAround() // from now on its vouchers are asked again and again
	return nil
}
