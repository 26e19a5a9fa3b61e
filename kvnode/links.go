package kvnode

import "github.com/leaderlease/go/kvnode/peerurl"

// The links follow the registry of members, and those whom somebody vouches for. All
// that sets or ends them looks at both anew under Node.linking, so whoever comes last
// has seen the newest, and no link is left to a member that was removed meanwhile.

// connectPeers is called when the registry has changed.
func (n *Node) connectPeers() {
	n.relink()
	members := n.store.Members()
	for id := range members.Removed {
		n.links.RemovePeer(id)
	}
	n.adviseAlone(members)
}

// relink leads the links to where members are believed to be, and disconnects whoever
// is not believed to be one any more. It reports whether a link depends on what others
// say.
func (n *Node) relink() (vouched bool) {
	n.linking.Lock()
	defer n.linking.Unlock()
	for _, m := range n.knownMembers() {
		if m.ID == n.ID() {
			continue
		}
		now, _ := n.believed(m.ID)
		vouched = vouched || len(now.PeerURLs) > len(m.PeerURLs)
		n.links.SetPeer(m.ID, peerurl.HostPorts(now.PeerURLs))
	}
	for _, p := range n.links.Peers() {
		if _, known := n.familiar(p.ID); known {
			continue
		}
		m, ok := n.believed(p.ID)
		if !ok {
			n.links.RemovePeer(p.ID)
			continue
		}
		vouched = true
		n.links.SetPeer(p.ID, peerurl.HostPorts(m.PeerURLs))
	}
	return vouched
}

// linkVouched dials a member that was added after what this one has applied: it may be
// the leader, from whom alone this member can learn that. The error is that of peer.
func (n *Node) linkVouched(id uint64) error {
	n.linking.Lock()
	defer n.linking.Unlock()
	m, err := n.peer(id)
	if err != nil {
		return err
	}
	n.links.SetPeer(id, peerurl.HostPorts(m.PeerURLs))
	n.askAround() // from now on its vouchers are asked again and again
	return nil
}
