package kvnode

import (
	"fmt"
	"strings"

	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// adviseMoved says that a member, which may be this one, is to be found elsewhere than
// the registry says, for whoever joins or starts later looks there. Moving it is a
// change of membership, which an operator makes.
func (n *Node) adviseMoved(m *store.Member, advertised string) {
	there := strings.Split(advertised, ",")
	// Right after the start the registry may be an old one.
	if m.ID == 0 || advertised == "" || !n.replay.isOver() || peerurl.AreSame(m.PeerURLs, there) || !n.logLimits.moved.Allow(m.ID) {
		return
	}
	n.log.Warn("a member advertises other peer URLs than the cluster has", "peer", labelled(m.Name, m.ID), "cluster_has", m.PeerURLs, "advertises", there,
		"advice", fmt.Sprintf("if it has moved: member update %x --peer-urls=%s; if not, start it with the URLs that the cluster has", m.ID, advertised))
}

// adviseAllMoved does the same for those that have connected before the registry was
// known, and for this member.
func (n *Node) adviseAllMoved() {
	all := n.store.Members().ByID
	for _, p := range n.links.Peers() {
		m := all[p.ID]
		n.adviseMoved(&m, p.Hello.PeerURLs)
	}
	self := all[n.ID()]
	n.adviseMoved(&self, strings.Join(n.cfg.self().PeerURLs, ","))
}
