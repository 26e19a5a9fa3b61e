package leasetrace

import (
	"encoding/binary"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"

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
	// voters is a configuration that still lacks missing KindVoter events.
	voters  quorum.JointConfig
	missing uint64
	// saving is the longest promise that is being saved, 0 if none is.
	saving time.Duration
	// died has, by term, the leader for which a death notice has voided a promise.
	died map[uint64]uint64
	// configured is set if a configuration has followed since a change is open.
	configured bool
}

func newReplay(s Start) *replay {
	r := &replay{start: s, term: s.Term, last: s.At, died: make(map[uint64]uint64)}
	r.guard = core.NewGuard(s.At, s.Incarnation, s.MaxPromise, s.Hold)
	if s.Saved > 0 {
		r.guard.SetStored(s.Duration, s.Saved)
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
	r.lease.SetRestartHold(r.guard.InRestartHold(e.At))
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

// decide repeats one decision.
func (r *replay) decide(e *Event) error {
	switch e.Kind {
	case KindVoters, KindVoter:
		return r.configure(e)
	case KindRaft:
		return r.follow(e)
	case KindDurable:
		r.durable = true
		return nil
	case KindSaving, KindSaved:
		return r.save(e)
	case KindProbe, KindCount, KindRelease:
		return r.lead(e)
	case KindPromise, KindGrant:
		return r.promise(e)
	case KindRequest, KindVoteIn, KindCandidacy, KindVoteOut, KindTick:
		return r.vote(e)
	case KindProcessDied:
		return r.processDied(e)
	case KindView, KindHeld:
		return r.show(e)
	case KindClockFailed, KindClockBack, KindClockDisrupted, KindClockRead:
		r.clock(e)
		return nil
	default:
		return r.told(e)
	}
}

// configure collects the voters of a configuration, which takes effect with the last one.
func (r *replay) configure(e *Event) error {
	if e.Kind == KindVoters {
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
		r.configured = true
	}
	return nil
}

// follow begins and ends leadership as raft does.
func (r *replay) follow(e *Event) error {
	r.guard.SetTerm(e.Term)
	r.term, r.role = e.Term, e.Role
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
func (r *replay) lead(e *Event) error {
	if e.Kind == KindCount {
		g := core.Grant{Sent: e.Instant, Duration: e.Duration, Reading: e.Reading, Incarnation: core.Incarnation(e.Number)}
		return differ("the grant renews the lease", e.OK, r.lease.Count(e.Peer, e.Term, g, e.At))
	}
	if e.Term == 0 || e.Term != r.lease.Term() {
		return fmt.Errorf("in term %d, while it leads %d (0: none)", e.Term, r.lease.Term())
	}
	if e.Kind == KindRelease {
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
func (r *replay) promise(e *Event) error {
	if e.Kind == KindPromise {
		made := r.guard.Promise(e.Peer, e.Term, core.Probe{Sent: e.Instant, Duration: e.Duration}, processOf(e), e.At)
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

// save replays changes of the longest promise in storage (V6).
func (r *replay) save(e *Event) error {
	if e.Kind == KindSaving {
		d, ok := r.guard.BeginSave(e.At)
		if !ok || r.saving != 0 {
			return fmt.Errorf("a longest promise of %v is saved, while %v is (0: none), and is due: %v", e.Duration, r.saving, ok)
		}
		r.saving = d
		return differ("the longest promise to be saved", e.Duration, d)
	}
	if r.saving == 0 {
		return fmt.Errorf("a longest promise of %v is saved without the event that begins to save it", e.Duration)
	}
	d := r.saving
	if r.saving = 0; e.OK {
		r.guard.Saved(d)
	}
	return differ("the longest promise that is saved", e.Duration, d)
}

// vote replays requests and votes, which a promise withholds.
func (r *replay) vote(e *Event) error {
	var rel *core.Release
	if e.Number != 0 {
		rel = &core.Release{Term: e.Number, At: e.Instant}
	}
	if err := r.deathWasReported(e); err != nil {
		return err
	}
	switch e.Kind {
	case KindRequest:
		may := r.guard.Admit(rel, e.At)
		if may && !e.OK && e.Message == raftpb.MsgPreVote && r.term == 0 {
			return nil // raft may panic on it: Lease.panicsLocked
		}
		return differ("the request is let in", e.OK, may)
	case KindVoteOut:
		others := e.Message == raftpb.MsgPreVoteResp && e.Peer != r.start.ID
		return differ("the vote may leave", e.OK, others || !r.guard.Bound(e.At))
	case KindCandidacy:
		if passed, ok := r.guard.Released(e.Term); rel != nil && (!ok || passed != *rel) {
			return fmt.Errorf("it passes on %v, and was shown %v", *rel, passed)
		}
	}
	return differ("it is free", e.OK, !r.guard.Bound(e.At))
}

// show replays the views for readers.
func (r *replay) show(e *Event) error {
	if e.Kind == KindHeld {
		s := r.shown.Check(e.At)
		return differ("the lease is held", held{e.OK, e.Status}, held{s == core.Valid, s})
	}
	if !r.revoked {
		r.lease.SetRestartHold(r.guard.InRestartHold(e.At))
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

// clock replays faults of the clock.
func (r *replay) clock(e *Event) {
	switch e.Kind {
	case KindClockFailed:
		r.lease.FailClock()
	case KindClockRead:
		r.lease.ClockRead(e.At)
	default:
		if e.Kind == KindClockBack {
			r.lease.ClockWentBack(e.At)
		}
		r.lease.StartOver(e.At)
		r.guard.StartOver(e.At)
	}
	r.revoked = true
}

// told replays calls of the embedder.
func (r *replay) told(e *Event) error {
	switch e.Kind {
	case KindInvalidate:
		r.lease.Invalidate(e.At)
	case KindClose:
		r.lease.Close()
	case KindDisk:
		r.lease.SetDiskStalled(e.OK)
	case KindConfPending:
		r.lease.SetConfPending(e.OK)
		if !e.OK && !r.configured {
			return fmt.Errorf("a change of the configuration is over, and its voters are not told (L5)")
		}
		r.configured = false
		return r.changes(e)
	case KindDisabled:
		r.lease.SetDisabled(e.OK)
		return r.changes(e)
	default:
		return fmt.Errorf("an event of kind %v", e.Kind)
	}
	return nil
}

// changes requires that a flag differs from its last value.
func (r *replay) changes(e *Event) error {
	if r.flags[e.Kind] == e.OK {
		return fmt.Errorf("it is %v once more", e.OK)
	}
	r.flags[e.Kind] = e.OK
	return nil
}

func differ[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: %+v, want %+v", what, got, want)
	}
	return nil
}

// isDeathNotice reports whether e is the request that a member makes for itself when a death
// notice voids its promise. No other member has sent it: a leader never releases up to Forever.
func isDeathNotice(e *Event) bool {
	return e.Kind == KindRequest && e.Message == raftpb.MsgTimeoutNow && e.Instant == core.Forever
}

// processOf is a process ID with the number that stands for the process in e. Traces hold no IDs.
func processOf(e *Event) (id core.ProcessID) {
	binary.BigEndian.PutUint64(id[:], e.Number)
	return id
}

// processDied replays a death notice (V8).
func (r *replay) processDied(e *Event) error {
	rel, void := r.guard.ProcessDied(e.Peer, processOf(e))
	if void {
		r.died[rel.Term] = e.Peer
	}
	return differ("the promise is void", voided{e.OK, e.Term}, voided{void, rel.Term})
}

// deathWasReported requires a death notice before the request that it causes.
func (r *replay) deathWasReported(e *Event) error {
	if isDeathNotice(e) && r.died[e.Number] != e.Peer {
		return fmt.Errorf("it takes %x, the leader of term %d, for dead, but no death notice has voided a promise to it", e.Peer, e.Number)
	}
	return nil
}

type voided struct {
	void bool
	term uint64
}
