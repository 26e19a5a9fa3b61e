package core

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"
)

// Params are the ID and the durations of the leader's half. The caller has validated them: 0 < MaxClockSkew <
// Duration, TransferTimeout > 0.
type Params struct {
	// ID is this node's raft ID.
	ID uint64
	// Duration is how long a probe asks voters to promise.
	Duration time.Duration
	// MaxClockSkew bounds how far two nodes' clocks drift apart over Duration.
	MaxClockSkew time.Duration
	// TransferTimeout is how long a transfer can still succeed after MsgTimeoutNow has left: raft's
	// election timeout.
	TransferTimeout time.Duration
}

// Lease is the arithmetic of the leader's half: it probes, counts grants and computes the end of the lease.
// leaderlease.Lease drives it.
type Lease struct {
	p      Params
	voters quorum.JointConfig
	voter  bool // whether this node is one of them

	// term is the term that the node leads, or 0.
	term      uint64
	ownCommit bool
	// after is the instant just before this node led, or that of the newest release or invalidation.
	// Only later probes count. Invariant: it never decreases within a term.
	after Instant
	// probed is the send instant of the newest probe.
	probed Instant
	// shift is added to a reading to make a send instant. It is 0 until the clock goes back. Send
	// instants must grow for the whole term, or the grant of an old probe would count as that of a
	// newer one. steps counts how often the clock went back by itself.
	shift time.Duration
	steps int
	// transferUntil is when a transfer under way can no longer succeed.
	transferUntil Instant
	// clockFault lasts from a reading that failed until ClockRead, or for the rest of the term.
	// unrenewed lasts from ClockRead until a quorum has answered; it only explains why there is no lease.
	clockFault, unrenewed bool

	// The driver sets these, independent of the term.
	closed, disabled, hold, confPending, diskStalled bool

	// peers holds one record per voter other than this node, by ID.
	peers []peer
	// tooFewClocks: the voters with trusted clocks are too few for a quorum.
	tooFewClocks bool
	end          Instant
}

// NewLease returns the leader's half for a node that does not lead yet.
func NewLease(p Params) *Lease { return &Lease{p: p} }

// Lead begins the leadership in term at now, when the node learns of it. It clears every grant (L8).
// A repeated call for the same term changes nothing.
func (l *Lease) Lead(term uint64, now Instant) {
	if term == l.term {
		return
	}
	l.StepDown()
	l.term = term
	// A probe that is sent at now counts.
	l.after = now - 1
	l.clockFault = !now.Valid()
	l.recompute()
}

// StepDown ends the leadership. The next one starts without grants (L8).
func (l *Lease) StepDown() {
	l.term, l.after, l.probed, l.shift, l.steps, l.transferUntil, l.end = 0, 0, 0, 0, 0, 0, 0
	l.ownCommit, l.clockFault, l.unrenewed = false, false, false
	for i := range l.peers {
		l.peers[i].forget()
	}
}

// Term returns the term that the node leads, or 0.
func (l *Lease) Term() uint64 { return l.term }

// OwnTermCommitted records that an entry of the term that the node leads is committed (L4).
func (l *Lease) OwnTermCommitted() { l.ownCommit = true }

// HasOwnTermCommit reports whether OwnTermCommitted was called in this term.
func (l *Lease) HasOwnTermCommit() bool { return l.ownCommit }

// SetVoters replaces the configuration and recomputes the lease from the grants at hand (L5). It
// drops the grants of former voters. They promise anew if they come back.
func (l *Lease) SetVoters(cfg quorum.JointConfig) {
	l.voters, l.voter = cfg, isVoter(cfg, l.p.ID)
	var kept []peer
	for _, id := range sortedVoters(cfg) {
		if id == l.p.ID {
			continue
		}
		if p := l.peer(id); p != nil {
			kept = append(kept, *p)
			continue
		}
		kept = append(kept, peer{id: id})
	}
	l.peers = kept
	l.noteClocks()
	l.recompute()
}

// IsVoter reports whether this node votes in its own configuration.
func (l *Lease) IsVoter() bool { return l.voter }

// Probe returns the probe of the next heartbeat (L1). It returns false if there must be none: the
// node does not lead, transfers leadership, cannot read its clock, or its lease is off.
func (l *Lease) Probe(now Instant) (Probe, bool) {
	if l.term == 0 || l.closed || l.disabled || l.clockFault || !now.Valid() || now.Before(l.transferUntil) {
		return Probe{}, false
	}
	sent := now.Add(l.shift)
	l.probed = max(l.probed, sent)
	return Probe{Sent: sent, Duration: l.p.Duration}, true
}

// Count takes a grant that arrived at now in a message of the given term. It reports whether the
// grant moved the end of the lease forward (L2). It ignores a grant for another leadership.
func (l *Lease) Count(from, term uint64, g Grant, now Instant) (renewed bool) {
	p := l.peer(from)
	if p == nil || term == 0 || term != l.term || l.clockFault || !now.Valid() {
		return false
	}
	if g.Sent <= l.after || g.Sent > now.Add(l.shift) || g.Duration <= 0 {
		return false
	}
	g.Sent = g.Sent.Add(-l.shift)
	suspect := p.rate.suspect
	if !p.count(g, now, l.p) {
		return false
	}
	before := l.end
	switch {
	case p.rate.suspect != suspect:
		l.noteClocks()
		l.recompute()
	case p.until() > l.end:
		// A promise that ends earlier than the lease cannot move its end.
		l.recompute()
	}
	return l.end > before
}

// Release gives the lease up for a transfer at now, and returns the release that MsgTimeoutNow must
// carry (L6). From here on only probes sent after now count. None is sent while the transfer can
// still succeed.
func (l *Lease) Release(now Instant) Release {
	l.transferUntil = now.Add(l.p.TransferTimeout)
	l.Invalidate(now)
	return Release{Term: l.term, At: l.after}
}

// Invalidate gives the lease up at now. Later probes renew it.
func (l *Lease) Invalidate(now Instant) {
	l.after = max(l.after, l.probed, now.Add(l.shift))
	for i := range l.peers {
		l.peers[i].forget()
	}
	l.recompute()
}

// maxSteps is how often the clock may go back in one term. After one more step there is no lease for the
// rest of the term, since such a clock will go back again.
const maxSteps = 3

// ClockWentBack is StartOver for a step back that no disruption explains. After more than maxSteps of them
// there is no lease for the rest of the term.
func (l *Lease) ClockWentBack(now Instant) {
	l.steps++
	l.StartOver(now)
}

// StartOver gives the lease up at now, after the clock went back or was disrupted, or the node turns
// out to have run before. Earlier instants mean nothing any more, and neither do the observations of other clocks.
// From here on only probes sent after now count.
func (l *Lease) StartOver(now Instant) {
	for i := range l.peers {
		l.peers[i].rate = rateWatch{}
	}
	l.noteClocks()
	l.shift = max(l.shift, max(l.after, l.probed).Sub(now))
	l.transferUntil = min(l.transferUntil, now.Add(l.p.TransferTimeout))
	l.ClockRead(now)
}

// FailClock records that the clock cannot be read. There is no lease until ClockRead.
func (l *Lease) FailClock() { l.clockFault = l.term != 0 }

// ClockRead ends FailClock at now, unless the clock went back too often. From here on only probes sent after
// now count.
func (l *Lease) ClockRead(now Instant) {
	bad := l.steps > maxSteps || l.shift >= time.Duration(maxReading)
	l.clockFault, l.unrenewed = bad && l.term != 0, l.term != 0
	l.Invalidate(now)
}

// Close turns the lease off for good.
func (l *Lease) Close() { l.closed = true }

// SetDisabled turns leases off or on.
func (l *Lease) SetDisabled(off bool) { l.disabled = off }

// SetRestartHold says whether the node is in its restart hold. This only explains why the node does
// not lead.
func (l *Lease) SetRestartHold(held bool) { l.hold = held }

// SetConfPending says whether SetVoters must still follow a committed configuration change (L5).
func (l *Lease) SetConfPending(pending bool) { l.confPending = pending }

// SetDiskStalled says whether the embedder's disk is stalled.
func (l *Lease) SetDiskStalled(stalled bool) { l.diskStalled = stalled }

// View returns the lease for readers as of now.
func (l *Lease) View(now Instant) View {
	return View{
		Term:   l.term,
		From:   max(now, 1),
		End:    l.end,
		Usable: l.usable(),
		Status: l.status(now),
	}
}

func (l *Lease) usable() Instant {
	if l.end == Forever {
		return Forever
	}
	return l.end.Add(-l.p.MaxClockSkew)
}

// status returns the strongest refusal that does not depend on the reader's clock (L4).
func (l *Lease) status(now Instant) Status {
	switch {
	case l.closed:
		return Closed
	case l.disabled:
		return Disabled
	case l.term == 0 && l.hold:
		return RestartHold
	case l.term == 0:
		return NotLeader
	case !l.IsVoter():
		return NotVoter
	case !l.ownCommit:
		return NoOwnTermCommit
	case l.confPending:
		return ConfPending
	case now.Before(l.transferUntil):
		return Transferring
	case l.clockFault || l.unrenewed || l.tooFewClocks:
		return ClockFault
	case l.diskStalled:
		return DiskStalled
	default:
		return Valid
	}
}

// recompute computes the end of the lease from the grants at hand (L3).
func (l *Lease) recompute() {
	l.end = 0
	if l.term != 0 {
		l.end = quorumEnd(l.voters, promises{l})
		l.unrenewed = l.unrenewed && l.end == 0
	}
}

// promises gives raft's quorum package the end of each voter's promise.
type promises struct{ l *Lease }

// AckedIndex implements quorum.AckedIndexer. The leader's own promise has no end: it cannot vote for
// another node without voiding its lease first (L7).
func (v promises) AckedIndex(id uint64) (quorum.Index, bool) {
	if id == v.l.p.ID {
		return quorum.Index(Forever), true
	}
	p := v.l.peer(id)
	if p == nil || p.until() <= 0 {
		return 0, false
	}
	return quorum.Index(p.until()), true
}

// soundClocks tells the quorum package which voters' clocks can be trusted.
type soundClocks struct{ l *Lease }

// AckedIndex implements quorum.AckedIndexer.
func (v soundClocks) AckedIndex(id uint64) (quorum.Index, bool) {
	p := v.l.peer(id)
	return quorum.Index(Forever), id == v.l.p.ID || (p != nil && !p.rate.suspect)
}

func (l *Lease) peer(id uint64) *peer {
	for i := range l.peers {
		if l.peers[i].id == id {
			return &l.peers[i]
		}
	}
	return nil
}

func sortedVoters(cfg quorum.JointConfig) []uint64 {
	ids := make([]uint64, 0, len(cfg[0])+len(cfg[1]))
	for id := range cfg.IDs() {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// quorumEnd returns the newest instant up to which a quorum of cfg has promised, by raft's own rule
// for commit indexes (L3). In a joint configuration both halves must have promised.
func quorumEnd(cfg quorum.JointConfig, promised quorum.AckedIndexer) Instant {
	// An empty configuration "commits" everything; a lease must not.
	if len(cfg[0]) == 0 {
		return 0
	}
	end := uint64(cfg.CommittedIndex(promised))
	if end > uint64(Forever) {
		return 0
	}
	return Instant(end)
}

// Voters returns the voting configuration of raft's ConfState. A voter that becomes a learner when
// the joint configuration is left counts only in the half that lists it as a voter.
func Voters(cs *raftpb.ConfState) quorum.JointConfig {
	return quorum.JointConfig{majority(cs.GetVoters()), majority(cs.GetVotersOutgoing())}
}

func majority(ids []uint64) quorum.MajorityConfig {
	if len(ids) == 0 {
		return nil
	}
	m := make(quorum.MajorityConfig, len(ids))
	for _, id := range ids {
		m[id] = struct{}{}
	}
	return m
}

// isVoter reports whether id is a voter in either half of cfg.
func isVoter(cfg quorum.JointConfig, id uint64) bool {
	_, in := cfg[0][id]
	_, out := cfg[1][id]
	return in || out
}

// AloneQuorum reports whether id wins an election in cfg by its own vote (V5).
func AloneQuorum(cfg quorum.JointConfig, id uint64) bool {
	return alone(cfg[0], id) && (len(cfg[1]) == 0 || alone(cfg[1], id))
}

func alone(half quorum.MajorityConfig, id uint64) bool {
	_, in := half[id]
	return in && len(half) == 1
}
