package kvnode

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/transport"
)

// A member that founds a cluster of one asks nobody. If it was one of three before
// and has lost its directory, its flags tell it to found that cluster again, beside
// the majority. So it draws the cluster's ID, waits for those who knew it to call,
// and ends when one of them does (docs/adr/0013-founders-of-one.md).

// alonePatience is how long a founder of one waits for members of an older cluster
// to call it. An attempt of theirs takes 2 s at most, and the pause before the next
// one 1 s. Shorter: it serves an empty store before they reach it. Longer: a first
// start takes that long. On loopback it does not wait: whoever could call is on this
// machine, whose operator sees it.
const alonePatience = 4 * time.Second

// drawAlone makes id that of a cluster of one, which no other founding has.
func (id *identity) drawAlone(c *Config) {
	id.Alone = true
	id.ClusterID = hashID("alone", fmt.Sprintf("%x", id.ClusterID), id.Instance)
	id.Admitted = !slices.ContainsFunc(c.self().PeerURLs, func(u string) bool { return !isLoopback(u) })
}

// isLoopback reports whether only this machine reaches a peer URL.
func isLoopback(peer string) bool {
	u, err := url.Parse(peer)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// waitAlone is asked at each tick: a founder of one takes part once nobody has
// called it for alonePatience.
func (c *campaigns) waitAlone(n *Node) {
	if c.open || !n.id.Alone || time.Since(c.began) < n.cfg.patience {
		return
	}
	c.open = n.note(func(id *identity) { id.Admitted = true })
}

// claimed is called by the transport when a member of another cluster takes this
// one for a member of its own, of the same ID, which is made of its peer URLs and
// the token. What it says is not believed before its cluster was asked.
func (n *Node) claimed(h transport.Hello) {
	if !n.id.Alone || !n.asking.CompareAndSwap(false, true) {
		return
	}
	n.workers.Go(func() {
		defer n.asking.Store(false)
		select {
		case <-n.begun:
		case <-n.stopping:
			return
		}
		if len(n.store.Members().ByID) > 1 {
			return // others have joined it since: whoever calls is the stray
		}
		if err := n.askClaimant(h); err != nil {
			n.fail(err)
		}
	})
}

// askClaimant returns ErrLost if the cluster of h has this member in its registry,
// as one that ran with another data directory.
func (n *Node) askClaimant(h transport.Hello) error {
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.ElectionTimeout)
	defer cancel()
	for _, addr := range hostPorts(strings.Split(h.PeerURLs, ",")) {
		r, err := transport.Ask(ctx, n.cfg.Dial, addr)
		if err != nil {
			n.log.Debug("kvnode: whoever claims this member does not say who is in its cluster", "error", err)
			continue
		}
		var members []store.Member
		if err := json.Unmarshal(r.Members, &members); err != nil || r.ClusterID == n.ClusterID() {
			continue
		}
		for _, m := range members {
			if m.ID == n.ID() && m.Instance != "" && m.Instance != n.id.Instance {
				return fmt.Errorf("%w: it has founded cluster %x, but cluster %x, as %s says, has it as a member with another data directory; %s",
					ErrLost, n.ClusterID(), r.ClusterID, addr, remedyAlone)
			}
		}
	}
	return nil
}

const remedyAlone = "if that directory is lost, remove this one and the member (member remove), and add it anew; if that cluster is of the past, " +
	"stop its members, or found the new one with another --initial-cluster-token"

// adviseAlone says once that the flags of a member would found a cluster again
// although it is not alone any more.
func (n *Node) adviseAlone(members *store.Members) {
	if len(members.ByID) < 2 || len(n.cfg.Cluster) > 1 || n.cfg.Existing {
		return
	}
	n.advice.Do(func() {
		n.log.Warn("kvnode: if this member loses its data directory, its flags have it found a cluster of one again, beside the others; "+
			"from its next start on, give it --initial-cluster-state existing and all members in --initial-cluster",
			"members", len(members.ByID))
	})
}
