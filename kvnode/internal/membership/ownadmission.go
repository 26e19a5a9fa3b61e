package membership

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// ErrForeignCluster means that this member, which has not taken part in any cluster yet, was made for another cluster
// than that of the other members.
var ErrForeignCluster = errors.New("kvnode: the other members are of another cluster")

// OwnAdmissionConfig configures OwnAdmission.
type OwnAdmissionConfig struct {
	Self uint64
	// Identity is the identity of the data directory. If the directory is new, enough of the members in
	// Identity must accept this one; members that joined later are not asked.
	Identity *memberdir.Identity
	List     *List
	Life     *lifecycle.Lifecycle
	// SaveAdmitted makes it durable that this member was admitted. If that fails, it stops the member and returns
	// false.
	SaveAdmitted func() bool
	// Opened is called when this member begins to take part.
	Opened func()
	// Advice says what to do if others refuse this new member as foreign.
	Advice string
	Log    *slog.Logger
}

// OwnAdmission lets this member take part once enough others have accepted it. Package admission decides when. Only
// the raft loop calls its methods, except Awaited.
type OwnAdmission struct {
	cfg     OwnAdmissionConfig
	state   *admission.State
	foreign lifecycle.LogLimit
	awaited atomic.Pointer[[]string]
}

// NewOwnAdmission returns the admission of a member that starts now.
func NewOwnAdmission(cfg OwnAdmissionConfig) *OwnAdmission {
	var members []uint64
	for _, m := range cfg.Identity.Members {
		members = append(members, m.ID)
	}
	a := &OwnAdmission{cfg: cfg}
	a.state = admission.New(admission.Config{Self: cfg.Self, Members: members, Waits: cfg.Identity.Waits()}, time.Now())
	a.showAwaited()
	return a
}

// IsOpen reports whether this member takes part. Until then raft neither ticks nor sees a message of a peer.
func (a *OwnAdmission) IsOpen() bool { return a.state.IsOpen() }

// Awaited describes the members of which some must accept this one before it takes part. It is empty once this member
// takes part. Any goroutine may call it.
func (a *OwnAdmission) Awaited() []string { return *a.awaited.Load() }

func (a *OwnAdmission) showAwaited() {
	var names []string
	for _, id := range a.state.Awaited() {
		names = append(names, a.cfg.List.Describe(id))
	}
	a.awaited.Store(&names) // a new slice, since readers still use the previous one
}

// Tick is called at each tick of the loop.
func (a *OwnAdmission) Tick(now time.Time) { a.apply(a.state.Tick(now)) }

// PeerAccepted records that a peer has accepted this member.
func (a *OwnAdmission) PeerAccepted(peer uint64) {
	a.foreign.Reset(peer)
	a.apply(a.state.Accepted(peer))
}

// PeerRefused records that a peer has refused this member, but not as one of another cluster.
func (a *OwnAdmission) PeerRefused(peer uint64) { a.state.Refused(peer) }

// PeerForeign records that a peer has refused this member as one of another cluster, at that time. The peer may be the
// one that is wrong, so a member that takes part goes on. A member that waits stops when all others have refused it for
// admission.RefusalPatience: they will never accept it, and its directory holds nothing yet.
//
// now is the time of the refusal, not the time at which the loop handles it.
func (a *OwnAdmission) PeerForeign(r *transport.RefusedError, now time.Time) {
	advice := "its data directory, or this member's, is of another cluster; stop the member with the wrong one, and remove that directory"
	if !a.state.IsOpen() {
		advice = a.cfg.Advice
	}
	switch giveUp := a.state.Foreign(r.Peer, now); {
	case giveUp:
		a.cfg.Life.Fail(fmt.Errorf("%w: each of them refuses this one: %w; %s", ErrForeignCluster, r, advice))
	case a.foreign.Allow(r.Peer):
		a.cfg.Log.Error("a peer is of another cluster", "peer", a.cfg.List.Describe(r.Peer), "error", r, "advice", advice)
	}
}

// apply carries out a decision.
//
// SaveAdmitted makes the raft loop wait for the disk. That delays nothing, since raft does nothing before this member
// takes part. The admission must be durable before that: after a restart, a member that was admitted takes part at
// once, because it may have voted.
func (a *OwnAdmission) apply(d admission.Decision) {
	switch d {
	case admission.Nothing:
	case admission.Open:
		if a.cfg.SaveAdmitted() {
			a.state.Opened()
			a.showAwaited()
			a.cfg.Opened()
		}
	case admission.LogAccepted:
		a.showAwaited()
		a.cfg.Log.Info("waits to be let in by others before it takes part", "missing", a.state.Missing(), "of", a.Awaited())
	case admission.LogWaiting:
		a.cfg.Log.Warn("still waits to be let in by others before it takes part", "missing", a.state.Missing(), "of", a.Awaited())
	}
}
