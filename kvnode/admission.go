package kvnode

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/kvnode/admission"
	"github.com/leaderlease/go/kvnode/memberdir"
	"github.com/leaderlease/go/kvnode/transport"
)

// When this member takes part and campaigns, package admission decides. Here is what it
// is told, and what is done then. All of that is in the loop.

// newAdmission is called before the loop runs.
func (n *Node) newAdmission() *admission.State {
	if n.waiting() && n.id.Alone {
		n.log.Info("founds a cluster of one, unless members of an older one call first", "in", n.cfg.patience)
	}
	var members []uint64
	for _, m := range n.id.Members {
		members = append(members, m.ID)
	}
	return admission.New(admission.Config{
		Self: n.ID(), Members: members, Waits: n.waiting(), Alone: n.id.Alone, Fresh: n.boot > 0,
		ElectionTicks: n.cfg.electionTicks(), Patience: n.cfg.patience,
	}, time.Now())
}

// Awaited returns the members of which some must let this one in before it takes
// part, by name and peer URL. It is empty once that has happened.
func (n *Node) Awaited() []string {
	if all := n.awaited.Load(); all != nil {
		return *all
	}
	return nil
}

// showAwaited makes known who has not let this member in yet.
func (n *Node) showAwaited() {
	var names []string
	for _, id := range n.loop.admission.Awaited() {
		names = append(names, n.book.nameOf(id))
	}
	n.awaited.Store(&names)
}

// admissionTick is called at each tick.
func (n *Node) admissionTick() {
	k := admission.Known{Leads: n.loop.role == raft.StateLeader, Behind: n.store.Applied() < n.boot}
	if !k.Leads && !k.Behind {
		k.Voters, k.Bound = n.store.Members().Voters(), n.lease.MayCampaign() != nil
	}
	n.do(n.loop.admission.Tick(time.Now(), k))
}

// do does what was decided, but to give up: only the caller knows why.
func (n *Node) do(d admission.Decision) {
	if d.Open && n.note(func(id *memberdir.Identity) { id.Admitted = true }) {
		n.loop.admission.Opened()
		n.showAwaited()
		n.admissionTick()
	}
	if d.Campaign {
		// Raft refuses while a configuration change waits to be applied, and asks
		// again by itself after its own timeout.
		_ = n.loop.raw.Campaign()
	}
	switch d.Say {
	case admission.Waits:
		n.showAwaited()
		n.log.Info("waits to be let in by others before it takes part", "missing", n.loop.admission.Missing(), "of", n.Awaited())
	case admission.StillWaits:
		n.log.Warn("still waits to be let in by others before it takes part", "missing", n.loop.admission.Missing(), "of", n.Awaited())
	}
}

// refusedAsForeign is called each time a peer says that it is of another cluster.
func (n *Node) refusedAsForeign(r *transport.RefusedError, now time.Time) {
	waits, advice := !n.loop.admission.IsOpen(), "its data directory, or this member's, is of another cluster; remove the one that is wrong from where it runs"
	if waits {
		advice = n.cfg.remedy(n.id.Joined)
	}
	switch d := n.loop.admission.Foreign(r.Peer, now); {
	case d.GiveUp:
		n.fail(fmt.Errorf("%w: each of them refuses this one: %w; %s", ErrForeignCluster, r, advice))
	case n.quiet.refused.loud(r.Peer):
		n.log.Error("a peer is of another cluster", "peer", n.book.nameOf(r.Peer), "error", r, "advice", advice)
	}
}
