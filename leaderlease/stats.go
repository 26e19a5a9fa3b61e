package leaderlease

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// Stats counts what has happened since New.
type Stats struct {
	// Renewals counts grants that moved the end of the lease. Losses counts how often a held lease was lost,
	// by the reason.
	Renewals uint64
	Losses   [core.NumStatus]uint64
	// Reads counts served reads by path, without TryRead. Refused counts failed lease checks by reason.
	Reads   [numPaths]uint64
	Refused [core.NumStatus]uint64
	// Rounds counts requested ReadIndex rounds. Answered counts the ReadIndex requests of followers that the
	// Lease answered itself; raft answers the others.
	Rounds, Answered uint64
	// Withheld counts the messages and calls that promises, and in rare cases other rules, forbade.
	Withheld struct {
		// Withheld from raft (V3). VoteRespIn counts granted votes and pre-votes for this node.
		VoteIn, PreVoteIn, TimeoutNowIn, VoteRespIn uint64
		// Withheld from the network (V4). VoteRespOut counts granted votes, and this node's votes
		// and pre-votes for itself.
		VoteOut, PreVoteOut, VoteRespOut uint64
		// Tick counts the ticks of a node that would have elected itself (V5). Self counts how often Ready
		// waited before this node's own vote, maybe several times for one Ready. WouldBlock adds nothing.
		Tick, Self uint64
	}
	// Probes counts sent probes, Promises made promises, and Grants sent grants. RefusedProbes counts probes
	// without a promise: they asked for more than MaxPromise or than is saved, were sent before a release, came
	// from a deposed leader or a dead process, or this node could not read its clock.
	Probes, Promises, Grants, RefusedProbes uint64
	// Malformed counts invalid lease fields, Absent the heartbeats and responses without one.
	Malformed, Absent uint64
	// Transfers counts releases, ClockFaults bad clock readings, and Disruptions how often the machine was
	// migrated or restored.
	Transfers, ClockFaults, Disruptions uint64
	// Deaths counts reports of dead processes, VoidedPromises the promises that they have voided.
	Deaths, VoidedPromises uint64
}

// counters has the counters of Stats. Reads under the lease write only paths.
type counters struct {
	paths   pathCounter
	refused [core.NumStatus]atomic.Uint64

	renewals, rounds, answered              atomic.Uint64
	probes, promises, grants, refusedProbes atomic.Uint64
	malformed, absent                       atomic.Uint64
	transfers, clockFaults, disruptions     atomic.Uint64
	deaths, voided                          atomic.Uint64
	losses                                  [core.NumStatus]atomic.Uint64
	withheld                                struct{ voteIn, preVoteIn, timeoutNowIn, voteRespIn, voteOut, preVoteOut, voteRespOut, tick, self atomic.Uint64 }
}

func (c *counters) init() { c.paths.init() }

// countField counts a message with an absent or malformed lease field.
func (c *counters) countField(err error) {
	if errors.Is(err, errNoField) {
		c.absent.Add(1)
		return
	}
	c.malformed.Add(1)
}

func (c *counters) withhold(t raftpb.MessageType, inbound bool) {
	switch {
	case t == raftpb.MsgVote && inbound:
		c.withheld.voteIn.Add(1)
	case t == raftpb.MsgPreVote && inbound:
		c.withheld.preVoteIn.Add(1)
	case t == raftpb.MsgTimeoutNow:
		c.withheld.timeoutNowIn.Add(1)
	case inbound:
		c.withheld.voteRespIn.Add(1)
	case t == raftpb.MsgVote:
		c.withheld.voteOut.Add(1)
	case t == raftpb.MsgPreVote:
		c.withheld.preVoteOut.Add(1)
	default:
		c.withheld.voteRespOut.Add(1)
	}
}

// Stats returns the counters. They are read one by one, not as of one moment.
func (l *Lease) Stats() Stats {
	if l == nil {
		return Stats{}
	}
	return l.stats.collect()
}

func (c *counters) collect() Stats {
	s := Stats{
		Renewals: c.renewals.Load(), Rounds: c.rounds.Load(), Answered: c.answered.Load(),
		Probes: c.probes.Load(), Promises: c.promises.Load(), Grants: c.grants.Load(), RefusedProbes: c.refusedProbes.Load(),
		Malformed: c.malformed.Load(), Absent: c.absent.Load(),
		Transfers: c.transfers.Load(), ClockFaults: c.clockFaults.Load(), Disruptions: c.disruptions.Load(),
		Deaths: c.deaths.Load(), VoidedPromises: c.voided.Load(),
	}
	for i := range c.losses {
		s.Losses[i], s.Refused[i] = c.losses[i].Load(), c.refused[i].Load()
	}
	from, to := &c.withheld, &s.Withheld
	to.VoteIn, to.PreVoteIn, to.TimeoutNowIn, to.VoteRespIn = from.voteIn.Load(), from.preVoteIn.Load(), from.timeoutNowIn.Load(), from.voteRespIn.Load()
	to.VoteOut, to.PreVoteOut, to.VoteRespOut = from.voteOut.Load(), from.preVoteOut.Load(), from.voteRespOut.Load()
	to.Tick, to.Self = from.tick.Load(), from.self.Load()
	for i := range c.paths.stripes {
		for p := range s.Reads {
			s.Reads[p] += c.paths.stripes[i].served[p].Load()
		}
	}
	return s
}

// pathCounter counts served reads in stripes, so that cores that read at the same time do not write to the same cache
// line.
type pathCounter struct{ stripes []stripe }

type stripe struct {
	served [numPaths]atomic.Uint64
	_      [64 - 8*numPaths]byte
}

func (c *pathCounter) init() { c.stripes = make([]stripe, stripeCount) }

// stripeCount is a power of two, at most 16. Two goroutines that run at the same time rarely share a stripe.
var stripeCount = func() int {
	n := 1
	for n < min(4*runtime.GOMAXPROCS(0), 16) {
		n *= 2
	}
	return n
}()

// add chooses the stripe by the address of the goroutine's stack, which needs no shared state.
func (c *pathCounter) add(p Path) {
	var here byte
	at := uintptr(unsafe.Pointer(&here)) >> 11
	at ^= at >> 5
	c.stripes[int(at)&(len(c.stripes)-1)].served[p].Add(1)
}

// Info describes a lease at one moment.
type Info struct {
	ID     uint64
	Term   uint64
	Leader uint64 // 0 if unknown
	Role   raft.StateType

	// Status says whether a lease read would be served now, and if not, why.
	Status Status
	// Remaining is for how long lease reads are still served, 0 if they are not. EndsIn is for how long the
	// promises of a quorum last: until the send instant plus Duration. Another leader may exist as
	// soon as Remaining is 0, which is MaxClockSkew earlier. Both are at most Duration.
	Remaining, EndsIn time.Duration

	// Promise is this node's promise to a leader, and its restart hold.
	Promise PromiseInfo
	// Peers are the other voters as the leader sees them, with their newest grants. Only a leader has them.
	Peers []PeerInfo

	Commit, Applied uint64
	// Waiting is the number of waiting reads.
	Waiting int

	Duration, MaxClockSkew, MaxPromise time.Duration
	Clock                              clock.Info
	// Err is the misuse that keeps leases off, if any.
	Err error
}

// Valid reports whether a lease read would be served now.
func (i *Info) Valid() bool { return i.Status == core.Valid }

// Info describes the lease as of now.
func (l *Lease) Info() Info {
	if l == nil {
		return Info{Status: core.Disabled}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	mu := &l.mu
	now := l.nowLocked()
	v := l.view.Load()
	s := Info{
		ID: l.id(), Term: mu.term, Leader: mu.leader, Role: mu.role,
		Status:    v.Check(now),
		Remaining: v.Remaining(now, l.cfg.Duration),
		Promise:   mu.guard.Info(now),
		Commit:    l.commit.Load(), Applied: l.applied.Load(),
		Waiting:  mu.reads.waiting.len() + mu.reads.awaitingApplied.len(),
		Duration: l.cfg.Duration, MaxClockSkew: l.cfg.MaxClockSkew, MaxPromise: l.cfg.MaxPromise,
		Clock: l.clockInfo,
		Err:   l.wrongLocked(),
	}
	if v.End != 0 {
		s.EndsIn = min(max(v.End.Sub(now), 0), l.cfg.Duration)
	}
	if mu.role == raft.StateLeader {
		s.Peers = mu.lease.Peers(now)
	}
	return s
}
