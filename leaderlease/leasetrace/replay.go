package leasetrace

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/quorum"

	"github.com/leaderlease/go/leaderlease/core"
)

// replay repeats the decisions of one process: the real core.Guard and core.Lease receive
// the recorded inputs, and must make the recorded decisions.
type replay struct {
	start Start
	guard *core.Guard
	lease *core.Lease

	term    uint64
	role    raft.StateType
	durable bool
	flags   [NumKinds]bool // what readers see follows from, by kind
	last    core.Instant   // the newest good reading
	shown   core.View      // what readers see
	// due is the instant of the call that has changed the lease: readers must see the
	// change before that call returns (L7). revoked is set if the clock revoked the lease.
	due            core.Instant
	owing, revoked bool
	// voters is a configuration of which missing voters have not been told.
	voters  quorum.JointConfig
	missing uint64
	// saving is the longest promise that is being saved, 0 if none is.
	saving time.Duration
	// died has, by term, the leader for which a death notice has voided a promise.
	died map[uint64]uint64
	// configured: a configuration was told since a change is open.
	configured bool
}

func newReplay(s Start) *replay {
	r := &replay{start: s, term: s.Term, last: s.At, died: make(map[uint64]uint64)}
	r.guard = core.NewGuard(s.At, s.Incarnation, s.MaxPromise, s.Hold)
	if s.Saved > 0 {
		r.guard.Keep(s.Duration, s.Saved)
	}
	r.guard.SetTerm(s.Term)
	r.lease = core.NewLease(core.Params{
		ID: s.ID, Duration: s.Duration, MaxClockSkew: s.MaxClockSkew, TransferTimeout: s.TransferTimeout,
	})
	return r
}

// step takes one event, and returns an error if it cannot have come next.
func (r *replay) step(e *Event) error {
	if err := r.order(e); err != nil {
		return err
	}
	if err := r.decide(e); err != nil {
		return err
	}
	if publishes[e.Kind] && r.missing == 0 {
		r.owe(e)
	}
	return nil
}

// publishes are the kinds of what can change the lease that readers see.
var publishes = [NumKinds]bool{
	KindVoters: true, KindVoter: true, KindRaft: true, KindCount: true,
	KindRelease: true, KindInvalidate: true, KindClose: true, KindDisk: true,
	KindConfPending: true, KindDisabled: true,
}

// order looks at what comes before what.
func (r *replay) order(e *Event) error {
	stepped := e.Kind == KindClockBack || e.Kind == KindClockDisrupted
	// The rest of a call has no instant if its clock could not be read.
	later := e.At != r.due && (e.At.Valid() || e.Kind == KindClockFailed)
	switch {
	case r.missing > 0 && e.Kind != KindVoter:
		return fmt.Errorf("%d voters of a configuration are not told", r.missing)
	case r.revoked && e.Kind != KindView:
		return fmt.Errorf("readers are not shown what the clock has cost the lease")
	case r.owing && e.Kind != KindView && later:
		return fmt.Errorf("readers still see %v, and the lease has changed at %d", described(&r.shown), r.due)
	case e.At.Valid() && e.At < r.last && !stepped:
		return fmt.Errorf("the clock shows %d, and has shown %d", e.At, r.last)
	}
	if e.At.Valid() {
		r.last = e.At
	}
	return nil
}

// owe notes whether readers see something else than the lease.
func (r *replay) owe(e *Event) {
	if !e.At.Valid() {
		return
	}
	r.lease.SetRestartHold(r.guard.Held(e.At))
	v := r.lease.View(e.At)
	r.due, r.owing = e.At, !same(&v, &r.shown)
}

// same is what readers go by: the same lease, whenever it was made.
func same(a, b *core.View) bool {
	return a.Term == b.Term && a.End == b.End && a.Status == b.Status
}

func described(v *core.View) string {
	return fmt.Sprintf("(term %d, end %d, %v)", v.Term, v.End, v.Status)
}
