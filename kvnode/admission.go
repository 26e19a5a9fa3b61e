package kvnode

import (
	"fmt"
	"time"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// When this member takes part, package admission decides. Here is what it
// is told, and what is done then. All of that is in the loop.

// newAdmission is called before the loop runs. A member waits until it is durable that it was
// admitted (Identity.Admitted): one that was killed before begins to count anew.
func (l *raftLoop) newAdmission() *admission.State {
	// Those of the identity, which says who founded the cluster, or whom a joiner was told of.
	// The log may know others by now; whoever is not waiting is not asked.
	var members []uint64
	for _, m := range l.id.Members {
		members = append(members, m.ID)
	}
	return admission.New(admission.Config{Self: l.ID(), Members: members, Waits: l.waiting()}, time.Now())
}

// Awaited returns the members of which some must let this one in before it takes
// part, by name and peer URL. It is empty once that has happened.
func (n *Node) Awaited() []string { return *n.loop.awaited.Load() }

// showAwaited makes known who has not let this member in yet. Each list is a new one, as those who
// have loaded the one before go on reading it.
func (l *raftLoop) showAwaited() {
	var names []string
	for _, id := range l.admission.Awaited() {
		names = append(names, l.book.nameOf(id))
	}
	l.awaited.Store(&names)
}

// do does what was decided, but to give up: only the caller knows why. It is durable that
// this member is admitted before it counts: after a restart it takes part at once, as the
// others may have counted its vote by then. If that cannot be written the node has failed,
// and nothing is opened.
//
// Here alone the loop itself waits for a write to the disk. It delays nothing: until the member
// is open raft neither ticks nor steps what peers send.
func (l *raftLoop) do(d admission.Decision) {
	if d.Open && l.note(func(id *memberdir.Identity) { id.Admitted = true }) {
		l.admission.Opened()
		l.showAwaited()
		// It need not wait for the next tick: whom it was waiting for may be waiting for it.
		l.elect(l.detector.Tick(time.Now(), l.standing()))
	}
	switch d.Say {
	case admission.Waits:
		l.showAwaited()
		l.log.Info("waits to be let in by others before it takes part", "missing", l.admission.Missing(), "of", *l.awaited.Load())
	case admission.StillWaits:
		l.log.Warn("still waits to be let in by others before it takes part", "missing", l.admission.Missing(), "of", *l.awaited.Load())
	}
}

// refusedAsForeign is called each time a peer says that it is of another cluster. One that
// says so may be a stray, so a member that takes part goes on and complains; one that
// waits ends once all the others have said so for RefusalPatience: it will never be let in,
// and its directory holds nothing yet.
func (l *raftLoop) refusedAsForeign(r *transport.RefusedError, now time.Time) {
	// now is when the peer said so, not when the loop has come to it: RefusalPatience is measured
	// between refusals, and a loop that was held up must not make two of them seem one.
	waits, advice := !l.admission.IsOpen(), "its data directory, or this member's, is of another cluster; remove the one that is wrong from where it runs"
	if waits {
		advice = l.cfg.remedy(l.id.Joined)
	}
	switch d := l.admission.Foreign(r.Peer, now); {
	case d.GiveUp:
		l.life.Fail(fmt.Errorf("%w: each of them refuses this one: %w; %s", ErrForeignCluster, r, advice))
	case l.logLimits.refused.Allow(r.Peer):
		l.log.Error("a peer is of another cluster", "peer", l.book.nameOf(r.Peer), "error", r, "advice", advice)
	}
}
