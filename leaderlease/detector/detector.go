package detector

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Interval is how often Poll must be called while a leader is suspected.
const Interval = 5 * time.Millisecond

const (
	// timeoutSlot is the length of a campaign slot after an election timeout, and minSlotTicks its
	// minimum in ticks. Two round trips and the writes of a slow disk fit in. In a shorter slot the
	// next member would campaign too, and outvote the first. With a longer one fail-over takes
	// longer when the first member is down.
	timeoutSlot  = 300 * time.Millisecond
	minSlotTicks = 3
	// missedHeartbeats is how many heartbeats must be missing before a suspicion is acted upon, and
	// before another member's pre-vote is a suspicion. It protects a live leader that no promise
	// protects, as with leases off. With fewer, a single late heartbeat would depose it.
	missedHeartbeats = 3
	// deferSlots is for how many slots another member that asks for pre-votes is left alone. On a
	// slow machine two members would grant each other pre-votes otherwise, and split the vote.
	deferSlots = 5
)

// Detector is one member's view of its leader. Only the goroutine that steps raft
// calls its methods.
type Detector struct {
	cfg       Config
	slotTicks int // of a slot after an election timeout
	fresh     bool
	// leader is the present leader, or the last one; 0 if none was known since the start.
	leader uint64
	// heard is the time of its last sign of life, silent the number of ticks since.
	heard     time.Time
	silent    int
	suspicion suspicion
	adaptive  adaptive
	// deferTicks is the value of silent up to which another member's election is left alone. rival is set
	// when another member has requested votes since this one campaigned.
	deferTicks int
	rival      bool
	// transferAt is the time of the leader's request to hand over, transferCause its kind.
	transferAt    time.Time
	transferCause Cause
	replacedAt    time.Time // when the leader was replaced; zero after the next commit
	stats         Stats
}

// suspicion describes why and since when the leader is suspected.
type suspicion struct {
	cause Cause
	term  uint64 // of the dead leader, for ProcessDied
	at    time.Time
	// freeAt is when the promise to the leader had ended and the leader was silent (leaderSilent).
	freeAt time.Time
	// deferUntil is the time up to which another member's candidacy is left alone.
	deferUntil time.Time
	// slot is the number, from 1 on, of the last slot in which this member has campaigned. forced
	// is set if it then campaigned by the message of Lease.ProcessDied.
	slot   int
	forced bool
}

// LeaderIs reports the leader that raft knows, raft.None if it knows none.
func (d *Detector) LeaderIs(leader uint64, now time.Time) {
	if leader == raft.None {
		return // the last leader counts
	}
	if leader == d.leader && d.suspicion.cause == ProcessDied {
		return // raft has stepped a late message of the dead leader
	}
	if leader != d.leader && d.leader != raft.None && d.leader != d.cfg.Self {
		d.recordFailOver(now) // but not on the former leader, which has heard nothing of its replacement
	}
	d.adaptive.noteLeader(leader != d.leader, now)
	d.fresh, d.leader, d.suspicion = false, leader, suspicion{}
	d.noteAlive(now)
}

// Gone reports that the other end has closed the last connection of peer: its process may have
// died. Do not report a timeout, or a connection that this process has closed.
func (d *Detector) Gone(peer uint64, now time.Time) { d.suspect(peer, ConnClosed, now) }

func (d *Detector) suspect(peer uint64, why Cause, now time.Time) {
	// A second suspicion does not prolong the first: after an election timeout silence decides.
	if peer != d.leader || peer == raft.None || peer == d.cfg.Self || d.suspicion.cause != notSuspected {
		return
	}
	d.suspicion = suspicion{cause: why, at: now}
	d.stats.Suspicions[why]++
}

// ProcessDied reports that the leader's process has died, and that Lease.ProcessDied has voided this
// member's promise to it and returned m. Call Poll next.
//
// The first member in order then campaigns at once by m, which needs no pre-vote. If no member has
// requested votes one slot later, the next member does the same. From then on the members campaign
// as after any suspicion. Only a leader of a later term ends the suspicion, since raft may still
// step messages that the dead process has sent.
//
// If Lease.ProcessDied has voided nothing, call Gone: the report may be about an earlier process.
func (d *Detector) ProcessDied(m *raftpb.Message, now time.Time) {
	peer := m.GetFrom()
	d.adaptive.confirm(peer)
	if peer != d.leader || peer == raft.None || peer == d.cfg.Self || d.suspicion.cause == ProcessDied {
		return
	}
	d.suspicion = suspicion{cause: ProcessDied, at: now, term: m.GetTerm()}
	d.stats.Suspicions[ProcessDied]++
}

// Silence returns the number of ticks since the last sign of life of the leader.
func (d *Detector) Silence() int { return d.silent }

// Suspects reports whether Poll must be called: the leader is suspected, or will be within a tick if
// it stays silent. It is enough to ask after each Tick and after each message.
func (d *Detector) Suspects(now time.Time) bool {
	return d.suspected(now) || d.suspicion.cause == Silence && d.adaptive.exceeded(d.adaptive.tick, now)
}

func (d *Detector) suspected(now time.Time) bool {
	return d.suspicion.cause != notSuspected && now.Sub(d.suspicion.at) < d.cfg.ElectionTimeout
}

// Heard reports a message that the lease has let in, before raft steps it. term is raft's term.
//
// A leader's heartbeats and appends are signs of life. Another member's request for a pre-vote is a
// suspicion if the leader has been unusually silent here too. The leader is then forgotten before
// raft steps m, or a member that has missed the closed connection would refuse its vote.
func (d *Detector) Heard(m *raftpb.Message, term uint64, now time.Time) Decision {
	d.adaptive.noteRunning(now)
	if d.adaptive.refute(m.GetFrom(), now) {
		d.stats.FalseSuspicions++
	}
	switch m.GetType() {
	case raftpb.MsgHeartbeat, raftpb.MsgApp, raftpb.MsgSnap:
		if m.GetTerm() >= term && m.GetFrom() == d.leader { // LeaderIs reports the next leader
			d.leaderHeard(m.GetTerm(), now)
		}
	case raftpb.MsgPreVote:
		if m.GetFrom() != d.leader && d.leaderSilent(now) && !d.adaptive.isUsual(now) {
			d.suspect(d.leader, PreVote, now)
		}
		if d.suspicion.deferUntil.IsZero() { // once: a candidate with a short log asks again and again
			d.suspicion.deferUntil = now.Add(deferSlots * d.cfg.Slot)
		}
		return Decision{Forget: d.startForgetting(now)}
	case raftpb.MsgTimeoutNow:
		d.transferAt, d.transferCause = now, Transfer
		if core.IsResignation(m) {
			d.transferCause = Resignation
		}
		if core.IsProcessDied(m) {
			d.transferAt = time.Time{} // this member made m: the leader has not asked for anything
		}
	case raftpb.MsgVote:
		if core.IsForcedVote(m) { // the vote does not say whether the leader has resigned
			d.transferAt, d.transferCause = now, Transfer
		}
		d.noteVoteRequest(m.GetTerm(), term)
	}
	return Decision{}
}

// noteVoteRequest records that another member has requested votes for the term asked. A voter then
// defers for an election timeout, as raft does: two disks must write before the candidate is
// elected, which may take longer than any slot.
func (d *Detector) noteVoteRequest(asked, term uint64) {
	d.rival = d.rival || asked >= term
	if asked > term {
		d.deferTicks = d.silent + d.cfg.ElectionTicks
	}
}

// noteAlive records a sign of life.
func (d *Detector) noteAlive(now time.Time) {
	d.heard, d.transferAt = now, time.Time{}
	d.silent, d.deferTicks, d.rival = 0, 0, false
}

// Refused reports that raft has refused the transferee its vote, though it has not voted in that term and knows no
// leader of it. So the transferee lacks an entry that this member has: the leader's MsgTimeoutNow may overtake its
// appends. This member then campaigns in its slot.
func (d *Detector) Refused(now time.Time) {
	if !d.transferAt.IsZero() {
		next := suspicion{cause: Transfer, at: now, freeAt: now}
		if d.suspicion.cause == ProcessDied { // the candidate knows of the same death
			next.cause, next.term, next.at = ProcessDied, d.suspicion.term, d.suspicion.at
		}
		d.transferAt, d.deferTicks, d.suspicion = time.Time{}, 0, next
	}
}

// leaderHeard handles a heartbeat or an append of the leader in term.
func (d *Detector) leaderHeard(term uint64, now time.Time) {
	if d.suspicion.cause == ProcessDied && term <= d.suspicion.term {
		return // the dead process had sent it
	}
	d.noteAlive(now)
	d.adaptive.noteAlive(now)
	if d.suspicion.cause == LongSilence || d.suspicion.cause == ProcessDied { // over, whenever the message was sent
		d.suspicion = suspicion{}
	}
	if d.suspicion.cause == notSuspected || now.Sub(d.suspicion.at) < d.cfg.Heartbeat {
		return // the message may be older than the suspicion
	}
	d.suspicion = suspicion{}
	d.stats.FalseSuspicions++
}

// leaderSilent reports whether the leader has missed enough heartbeats, or is known to be dead.
func (d *Detector) leaderSilent(now time.Time) bool {
	return d.suspicion.cause == ProcessDied || now.Sub(d.heard) >= missedHeartbeats*d.cfg.Heartbeat
}

// startForgetting reports whether raft must forget the leader, once per suspicion, when the leader is
// silent. It sets freeAt. Its callers know that the promise to the leader has ended.
func (d *Detector) startForgetting(now time.Time) bool {
	if !d.suspected(now) || !d.suspicion.freeAt.IsZero() || !d.leaderSilent(now) {
		return false
	}
	d.suspicion.freeAt = now
	if d.suspicion.cause == restart {
		return false // raft knows no leader
	}
	d.stats.Forgets++
	return true
}

// Poll decides what to do about a suspected leader. Call it every Interval while Suspects reports
// true, and after messages were stepped. Once the promise to the leader has ended and the leader is
// silent, raft forgets it, and each member campaigns in its slot.
func (d *Detector) Poll(now time.Time, k State) (do Decision) {
	d.adaptive.noteRunning(now)
	if k.Leads || k.Away || k.Bound || !slices.Contains(k.Voters, d.cfg.Self) {
		return Decision{}
	}
	// Silence is judged only after the promise has ended. A suspicion before that would decide
	// nothing, and might prove false.
	if d.suspicion.cause == notSuspected && d.adaptive.suspect(d.leader, now) {
		d.suspect(d.leader, LongSilence, now)
	}
	if !d.suspected(now) {
		return Decision{}
	}
	do.Forget = d.startForgetting(now)
	s := &d.suspicion
	if s.freeAt.IsZero() || now.Before(s.deferUntil) {
		return do
	}
	rank, of := d.rank(k.Voters)
	slot, length := d.slotAt(now.Sub(s.freeAt), of)
	if slot%of != rank || slot+1 == s.slot || k.Candidate && length < max(timeoutSlot*2/3, 4*d.cfg.Slot) || !d.mayCampaign(k) {
		return do
	}
	do.Force = d.mustForce(k)
	s.slot, s.forced = slot+1, do.Force
	do.Campaign, d.rival = true, false
	return do
}

// mustForce reports whether to campaign by the message of Lease.ProcessDied: in the first slot only.
func (d *Detector) mustForce(k State) bool {
	return d.suspicion.cause == ProcessDied && d.suspicion.slot == 0 && !k.Candidate
}

// mayCampaign reports whether a campaign disturbs no election that may still be won. A candidate
// gives up its own election if the vote was split, or if its campaign was forced: raft requests
// votes once, no pre-vote has shown that members would grant them, and a member in its restart hold
// drops the request.
func (d *Detector) mayCampaign(k State) bool {
	if k.Candidate {
		return d.rival || d.suspicion.forced
	}
	return d.silent >= d.deferTicks
}

// slotAt returns the number and the length of the slot when elapsed has passed since freeAt. Each round
// of slots is twice as long as the round before: if slots are shorter than the latency between members,
// the vote is split. A candidate with a rival campaigns again once a slot is as long as an election takes.
func (d *Detector) slotAt(elapsed time.Duration, of int) (slot int, length time.Duration) {
	for length = d.firstSlot(); elapsed >= time.Duration(of)*length; length *= 2 {
		elapsed -= time.Duration(of) * length
		slot += of
	}
	return slot + int(elapsed/length), length
}

// firstSlot is the length of the first slots. After a death it is doubled: no pre-vote tells the next
// member about the campaign, and the first one's term must be on its disk before its request leaves.
func (d *Detector) firstSlot() time.Duration {
	if d.suspicion.cause == ProcessDied {
		return 2 * d.cfg.Slot
	}
	return d.cfg.Slot
}

// rank returns the member's position among the voters other than the leader, and their number.
func (d *Detector) rank(voters []uint64) (at, of int) {
	for _, id := range voters {
		switch {
		case id == d.leader:
			continue
		case id < d.cfg.Self:
			at++
		}
		of++
	}
	return at, max(of, 1)
}

// Tick decides whether to campaign because of an election timeout. Call it at each tick of raft.
//
// Raft draws each timeout from one to two election timeouts, so that two members rarely campaign at
// once. Slots prevent that without waiting: the first one begins just after one election timeout.
func (d *Detector) Tick(now time.Time, k State) Decision {
	d.adaptive.noteRunning(now)
	d.stats.Limit = 0
	if !k.Leads && d.cfg.Observe > 0 {
		d.stats.Limit = d.adaptive.limit(now)
	}
	due := d.countTick(k)
	d.rival = d.rival && !due
	return Decision{Campaign: due}
}

func (d *Detector) countTick(k State) bool {
	d.silent++
	index := slices.Index(k.Voters, d.cfg.Self)
	switch {
	case k.Leads, k.Away, k.Bound:
		return false
	case k.Candidate && (d.fresh || len(k.Voters) == 1): // its vote waits for the disk; raft's own timeout ends that
		return false
	case index < 0: // a learner, or removed
		return false
	case len(k.Voters) == 1:
		return true
	case !d.mayCampaign(k):
		return false
	case d.fresh:
		// The lowest ID begins. The others follow if it does not campaign.
		due := d.silent > index*d.slotTicks
		if due {
			d.silent = 0
		}
		return due
	case d.silent <= d.cfg.ElectionTicks:
		return false
	}
	// In each slot a member asks for pre-votes three times. At the first time the others may lack a
	// tick until they would vote, and two members may have asked at once.
	rank, of := d.rank(k.Voters)
	since, round := d.silent-d.cfg.ElectionTicks-1, d.slotTicks*of
	at := since%round - d.slotTicks*rank
	if k.Candidate {
		// The vote was split, by a slot shorter than the latency or by raft's own timeout in a
		// member. If two rounds do not help, the disks are slow, and raft's own timeouts give
		// them more time than slots do.
		return at == 0 && since < 2*round
	}
	return at == 0 || at == d.slotTicks/2 || at == d.slotTicks*2/3
}
