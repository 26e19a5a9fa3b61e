package leasetrace

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
)

// replay takes one process through the rules once more: the real core.Guard and
// core.Lease are told what the trace says that they were told, and what they decide
// must be what it says that they decided.
type replay struct {
	start leaderlease.TraceStart
	guard *core.Guard
	lease *core.Lease

	role    raft.StateType
	durable bool
	last    core.Instant // the newest good reading
	shown   core.View    // what readers see
	// due is the instant of the call that has changed the lease: readers must be shown
	// the change before that call is over (L7). revoked says that the clock did it.
	due            core.Instant
	owing, revoked bool
	// voters is a configuration of which missing voters have not been told.
	voters  quorum.JointConfig
	missing uint64
}

func newReplay(s leaderlease.TraceStart) *replay {
	r := &replay{start: s, last: s.At}
	r.guard = core.NewGuard(s.At, s.Incarnation, s.MaxPromise, s.Hold)
	r.guard.SetTerm(s.Term)
	r.lease = core.NewLease(core.Params{
		ID: s.ID, Duration: s.Duration, MaxClockSkew: s.MaxClockSkew, TransferTimeout: s.TransferTimeout,
	})
	return r
}

// step takes one event, and returns an error if it cannot have come next.
func (r *replay) step(e *leaderlease.TraceEvent) error {
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
var publishes = [leaderlease.NumTraceKinds]bool{
	leaderlease.TraceVoters: true, leaderlease.TraceVoter: true, leaderlease.TraceRaft: true, leaderlease.TraceCount: true,
	leaderlease.TraceRelease: true, leaderlease.TraceInvalidate: true, leaderlease.TraceClose: true, leaderlease.TraceDisk: true,
	leaderlease.TraceConfPending: true, leaderlease.TraceDisabled: true,
}

// order looks at what comes before what.
func (r *replay) order(e *leaderlease.TraceEvent) error {
	stepped := e.Kind == leaderlease.TraceClockBack || e.Kind == leaderlease.TraceClockDisrupted
	switch {
	case r.missing > 0 && e.Kind != leaderlease.TraceVoter:
		return fmt.Errorf("%d voters of a configuration are not told", r.missing)
	case r.revoked && e.Kind != leaderlease.TraceView:
		return fmt.Errorf("readers are not shown what the clock has cost the lease")
	case r.owing && e.Kind != leaderlease.TraceView && e.At != r.due:
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
func (r *replay) owe(e *leaderlease.TraceEvent) {
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

// decide lets core decide again.
func (r *replay) decide(e *leaderlease.TraceEvent) error {
	switch e.Kind {
	case leaderlease.TraceVoters, leaderlease.TraceVoter:
		return r.configure(e)
	case leaderlease.TraceRaft:
		return r.follow(e)
	case leaderlease.TraceDurable:
		r.durable = true
		return nil
	case leaderlease.TraceProbe, leaderlease.TraceCount, leaderlease.TraceRelease:
		return r.lead(e)
	case leaderlease.TracePromise, leaderlease.TraceGrant:
		return r.promise(e)
	case leaderlease.TraceRequest, leaderlease.TraceVoteIn, leaderlease.TraceCandidacy, leaderlease.TraceVoteOut, leaderlease.TraceTick:
		return r.vote(e)
	case leaderlease.TraceView, leaderlease.TraceHeld:
		return r.show(e)
	case leaderlease.TraceClockFailed, leaderlease.TraceClockBack, leaderlease.TraceClockDisrupted, leaderlease.TraceClockRead:
		r.clock(e)
		return nil
	default:
		return r.told(e)
	}
}

// configure collects the voters of a configuration, which counts once all are told.
func (r *replay) configure(e *leaderlease.TraceEvent) error {
	if e.Kind == leaderlease.TraceVoters {
		r.voters, r.missing = quorum.JointConfig{}, e.Number
	} else {
		if r.missing == 0 {
			return fmt.Errorf("a voter of no configuration")
		}
		r.missing--
		for i := range r.voters {
			if e.Number&(1<<i) == 0 {
				continue
			}
			if r.voters[i] == nil {
				r.voters[i] = quorum.MajorityConfig{}
			}
			r.voters[i][e.Peer] = struct{}{}
		}
	}
	if r.missing == 0 {
		r.lease.SetVoters(r.voters)
	}
	return nil
}

// follow begins and ends reigns as raft says.
func (r *replay) follow(e *leaderlease.TraceEvent) error {
	r.guard.SetTerm(e.Term)
	r.role = e.Role
	if e.Role != raft.StateLeader {
		r.lease.StepDown()
		if e.OK {
			return fmt.Errorf("an entry of its own term is committed, and it does not lead")
		}
		return nil
	}
	if r.lease.Term() != e.Term {
		r.lease.Lead(e.Term, e.At)
	}
	switch {
	case e.OK:
		r.lease.OwnTermCommitted()
	case r.lease.HasOwnTermCommit():
		return fmt.Errorf("the first entry of term %d is not committed any more", e.Term)
	}
	return nil
}

// lead replays the leader's rules.
func (r *replay) lead(e *leaderlease.TraceEvent) error {
	if e.Kind == leaderlease.TraceCount {
		g := core.Grant{Sent: e.Instant, Duration: e.Duration, Reading: e.Reading, Incarnation: core.Incarnation(e.Number)}
		return differ("the grant renews the lease", e.OK, r.lease.Count(e.Peer, e.Term, g, e.At))
	}
	if e.Term == 0 || e.Term != r.lease.Term() {
		return fmt.Errorf("in term %d, while it leads %d (0: none)", e.Term, r.lease.Term())
	}
	if e.Kind == leaderlease.TraceRelease {
		rel := r.lease.Release(e.At)
		return differ("the release", core.Release{Term: e.Number, At: e.Instant}, rel)
	}
	p, ok := r.lease.Probe(e.At)
	if !ok {
		return fmt.Errorf("no probe may leave")
	}
	return differ("the probe", core.Probe{Sent: e.Instant, Duration: e.Duration}, p)
}

// promise replays the voter's promises.
func (r *replay) promise(e *leaderlease.TraceEvent) error {
	if e.Kind == leaderlease.TracePromise {
		made := r.guard.Promise(e.Peer, e.Term, core.Probe{Sent: e.Instant, Duration: e.Duration}, e.At)
		return differ("the promise is made", e.OK, made)
	}
	if r.role != raft.StateFollower || !r.durable {
		return fmt.Errorf("a grant leaves a %v, with a term on its disk: %v", r.role, r.durable)
	}
	g, ok := r.guard.Grant(e.Peer, e.Term, e.At)
	if !ok {
		return fmt.Errorf("nothing was promised to %x in term %d", e.Peer, e.Term)
	}
	return differ("the grant", core.Grant{Sent: e.Instant, Duration: e.Duration, Reading: e.Reading, Incarnation: core.Incarnation(e.Number)}, g)
}

// vote replays what a promise keeps back.
func (r *replay) vote(e *leaderlease.TraceEvent) error {
	var rel *core.Release
	if e.Number != 0 {
		rel = &core.Release{Term: e.Number, At: e.Instant}
	}
	switch e.Kind {
	case leaderlease.TraceRequest:
		may := r.guard.Admit(rel, e.At)
		if may && !e.OK && e.Message == raftpb.MsgPreVote {
			return nil // raft may panic on it: Lease.panicsLocked
		}
		return differ("the request is let in", e.OK, may)
	case leaderlease.TraceVoteOut:
		others := e.Message == raftpb.MsgPreVoteResp && e.Peer != r.start.ID
		return differ("the vote may leave", e.OK, others || !r.guard.Bound(e.At))
	case leaderlease.TraceCandidacy:
		if passed, ok := r.guard.Released(e.Term); rel != nil && (!ok || passed != *rel) {
			return fmt.Errorf("it passes on %v, and was shown %v", *rel, passed)
		}
	}
	return differ("it is free", e.OK, !r.guard.Bound(e.At))
}

// show replays what readers see.
func (r *replay) show(e *leaderlease.TraceEvent) error {
	if e.Kind == leaderlease.TraceHeld {
		s := r.shown.Check(e.At)
		return differ("the lease is held", held{e.OK, e.Status}, held{s == core.Valid, s})
	}
	if !r.revoked {
		r.lease.SetRestartHold(r.guard.Held(e.At))
	}
	r.owing, r.revoked = false, false
	v := r.lease.View(e.Reading)
	got := core.View{Term: e.Term, From: e.Reading, End: e.Instant, Status: e.Status}
	if !same(&v, &got) || v.From != got.From {
		return fmt.Errorf("readers are shown %v, want %v", described(&got), described(&v))
	}
	r.shown = v
	return nil
}

type held struct {
	held   bool
	status core.Status
}

// clock replays what the clock has cost.
func (r *replay) clock(e *leaderlease.TraceEvent) {
	switch e.Kind {
	case leaderlease.TraceClockFailed:
		r.lease.FailClock()
	case leaderlease.TraceClockRead:
		r.lease.ClockRead(e.At)
	default:
		if e.Kind == leaderlease.TraceClockBack {
			r.lease.ClockWentBack(e.At)
		}
		r.lease.ClockStepped(e.At)
		r.guard.ClockStepped(e.At)
	}
	r.revoked = true
}

// told takes what the embedder has said.
func (r *replay) told(e *leaderlease.TraceEvent) error {
	switch e.Kind {
	case leaderlease.TraceInvalidate:
		r.lease.Invalidate(e.At)
	case leaderlease.TraceClose:
		r.lease.Close()
	case leaderlease.TraceDisk:
		r.lease.SetDiskStalled(e.OK)
	case leaderlease.TraceConfPending:
		r.lease.SetConfPending(e.OK)
	case leaderlease.TraceDisabled:
		r.lease.SetDisabled(e.OK)
	default:
		return fmt.Errorf("an event of kind %v", e.Kind)
	}
	return nil
}

func differ[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: %+v, want %+v", what, got, want)
	}
	return nil
}
