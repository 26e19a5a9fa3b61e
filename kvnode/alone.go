package kvnode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leaderlease/go/kvnode/peerurl"
	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/transport"
)

// A member that founds a cluster of one asks nobody. If it was one of three before
// and has lost its directory, its configuration tells it to found that cluster again, beside
// the majority. So it draws the cluster's ID, waits for those who knew it to call,
// and ends when one of them does (docs/adr/0013-founders-of-one.md).

// claimed is called by the transport when a member of another cluster has dialled
// this one. Where clusters have tokens of their own it means nothing. What it says is
// not believed before its cluster was asked. Once this member takes part, a claim is
// said and no more: whoever calls may be the stray.
func (a *asker) claimed(ctx context.Context, h transport.Hello) {
	switch {
	case !a.id.Alone || h.To != a.ID() && h.Token != a.id.Token: // an ID is made of the token
	case a.waiting():
		a.hearOut(ctx, h)
	case a.quiet.refused.loud(a.ID()): // one line for all, as anybody can call under any ID
		if claim, err := a.askClaimant(ctx, h); err == nil && claim != "" {
			a.log.Error("another cluster has a member at this address", "claim", claim, "advice", "see which of the two holds what counts: "+
				"if this one, stop the members of the other, or remove the member there; if the other, this one has lost its data directory and begun anew: "+
				"stop it, save what was written to it since, and only then add it to the other as a new member")
		}
	}
}

// hearOut ends this member, which waits, if the claim of h is true.
func (a *asker) hearOut(ctx context.Context, h transport.Hello) {
	a.calls.put(func(l *raftLoop) { l.admission.Asks() })
	claim, err := a.askClaimant(ctx, h)
	if err != nil && a.quiet.refused.loud(a.ID()) {
		a.log.Warn("waits with founding its cluster, as a member of another one calls, which cannot be asked whether this one is its own; "+
			"make its peer URLs reachable from here, stop it, or begin anew with another Config.Token",
			"peer", labelled(h.Name, h.From), "urls", shown(h.PeerURLs, 4*shownBytes), "cluster", transport.ID(h.ClusterID), "error", err)
	}
	a.calls.put(func(l *raftLoop) {
		if l.admission.Asked(claim != "", err, time.Now()).GiveUp {
			a.fail(fmt.Errorf("%w: %s; %s", ErrLost, claim, a.cfg.remedyAlone()))
		}
	})
}

// askClaimant returns how the cluster of h has this member, or another one at its
// address, in its registry, and "" if it has not.
func (a *asker) askClaimant(ctx context.Context, h transport.Hello) (claim string, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ElectionTimeout)
	defer cancel()
	err = a.cfg.askFirst(ctx, peerurl.HostPorts(strings.Split(h.PeerURLs, ",")), func(addr string, r transport.Roster) error {
		if r.ClusterID != h.ClusterID {
			return fmt.Errorf("cluster %x answers at %s", r.ClusterID, addr)
		}
		var members []store.Member
		if err := json.Unmarshal(r.Members, &members); err != nil {
			return err
		}
		if own := slices.IndexFunc(members, a.isHere); own >= 0 {
			claim = fmt.Sprintf("this one is of cluster %x, but cluster %x, as %s says, has member %s with another data directory, or none yet",
				a.ClusterID(), r.ClusterID, addr, describe(&members[own]))
		}
		return nil
	})
	return claim, err
}

// isHere reports whether m is this member, or is to be found where it is.
func (a *asker) isHere(m store.Member) bool {
	isOwn := func(u string) bool {
		return slices.ContainsFunc(a.cfg.self().PeerURLs, func(own string) bool { return peerurl.Address(own) == peerurl.Address(u) })
	}
	return m.ID == a.book.self || slices.ContainsFunc(m.PeerURLs, isOwn)
}

// adviseAlone says once that the configuration of a member would found a cluster again
// although it is not alone any more.
func (r *routes) adviseAlone(members *store.Members) {
	if len(members.ByID) < 2 || len(r.cfg.Cluster) > 1 || r.cfg.Existing {
		return
	}
	r.advised.Do(func() {
		r.log.Warn("if this member loses its data directory, its configuration has it found a cluster of one again, beside the others; "+
			"from its next start on, give it Config.Existing and all members in Config.Cluster",
			"members", len(members.ByID))
	})
}
