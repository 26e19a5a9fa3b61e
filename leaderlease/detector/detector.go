package detector

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Interval is how often Poll is to be called while a leader is suspected.
const Interval = 5 * time.Millisecond

const (
	// longTurn is the time between two turns after plain silence, and leastTurn how many ticks
	// it has at least: two round trips and a slow disk's writes fit in. Shorter: the next one
	// stands, too, and outvotes the first. Longer: fail-over takes longer if the first is down.
	longTurn  = 300 * time.Millisecond
	leastTurn = 3
	// quiet is after how many heartbeats' time without one a hint is acted upon, and another
	// member's request for a pre-vote counts as one. Fewer: a single late heartbeat would do. It
	// is what keeps a leader that lives where no promise does, as with leases off.
	quiet = 3
	// patience is for how many turns another member that asks for pre-votes is left alone:
	// on a slow machine both would grant each other theirs, and split the vote.
	patience = 5
)

// Detector is what one member knows about its leader. Its methods are called by one
// goroutine, the one that steps raft.
type Detector struct {
	cfg   Config
	turn  int // ticks of longTurn
	fresh bool
	// leader is who leads, or led last; 0 if none was known since the start.
	leader uint64
	// heard is when it gave the last sign of life, silent how many ticks ago.
	heard  time.Time
	silent int
	// hint is what is suspected of it, learnt how silent leaders are while they live.
	hint   suspicion
	learnt learnt
	// back is until which tick of silence the election of another has time, rival whether
	// another has asked for votes since this member stood last.
	back  int
	rival bool
	// asked is when it wished that another leads, wish how; replaced when another did, until
	// something was committed.
	asked, replaced time.Time
	wish            Way
	stats           Stats
}

// suspicion is the time line of a hint.
type suspicion struct {
	way Way // Silence if there is none
	// term is that of an obituary.
	term uint64
	// at is when the hint came, free when the promise had ended.
	at, free time.Time
	// yield is until when another member's candidacy is not disturbed.
	yield time.Time
	// turn is the number of the last turn in which the member has campaigned, from 1 on; forced that
	// it did so by an obituary.
	turn   int
	forced bool
}

// LeaderIs tells who leads, raft.None if nobody is known to.
func (d *Detector) LeaderIs(leader uint64, now time.Time) {
	if leader == raft.None {
		return // who led last is what counts
	}
	if leader == d.leader && d.hint.way == Obituary {
		return // raft has stepped what the dead had sent; Heard knows those of a later term
	}
	if leader != d.leader && d.leader != raft.None && d.leader != d.cfg.Self {
		d.note(now) // who led by itself has heard nothing of how it was replaced
	}
	d.learnt.follow(leader != d.leader, now)
	d.fresh, d.leader, d.hint = false, leader, suspicion{}
	d.still(now)
}

// Gone tells that the last connection from a peer was ended by the other end, and not by
// this one or by a timeout: its process may have died. It is a hint, never a proof.
func (d *Detector) Gone(peer uint64, now time.Time) { d.suspect(peer, Hint, now) }

func (d *Detector) suspect(peer uint64, why Way, now time.Time) {
	if peer != d.leader || peer == raft.None || peer == d.cfg.Self || d.hint.way != Silence {
		return // or it has been suspected already, and silence decides by now
	}
	d.hint = suspicion{way: why, at: now}
	d.stats.Hints[why]++
}

// Silence is how many ticks ago the leader, now or last, gave a sign of life.
func (d *Detector) Silence() int { return d.silent }

// Suspects reports whether Poll is to be called: the leader is suspected, or will be within a
// tick if it stays silent. Whoever asks after each Tick, and each message, is in time.
func (d *Detector) Suspects(now time.Time) bool {
	return d.suspected(now) || d.hint.way == Silence && d.learnt.alarming(d.learnt.tick, now)
}

func (d *Detector) suspected(now time.Time) bool {
	return d.hint.way != Silence && now.Sub(d.hint.at) < d.cfg.ElectionTimeout
}

// Heard tells of a message that the lease has let in, before raft steps it, and of raft's
// term. A leader's heartbeats and entries are signs of life: what arrives later than what
// was under way at the time of a hint ends the suspicion. A member that asks for a
// pre-vote suspects the leader; if it has been silent here, too, for longer than is usual, that
// is a hint, and to be forgotten before raft steps m, or one member that has missed the hint
// would veto. One that knows less of the leader, as after a restart, decides nothing by itself.
func (d *Detector) Heard(m *raftpb.Message, term uint64, now time.Time) Decision {
	d.learnt.runs(now)
	if d.learnt.acquits(m.GetFrom(), now) {
		d.stats.FalseAlarms++
	}
	switch m.GetType() {
	case raftpb.MsgHeartbeat, raftpb.MsgApp, raftpb.MsgSnap:
		if m.GetTerm() >= term && m.GetFrom() == d.leader { // of the next one LeaderIs tells
			d.alive(m.GetTerm(), now)
		}
	case raftpb.MsgPreVote:
		if m.GetFrom() != d.leader && d.quiet(now) && !d.learnt.usual(now) {
			d.suspect(d.leader, PreVote, now)
		}
		if d.hint.yield.IsZero() { // once: one whose log is short asks on and on
			d.hint.yield = now.Add(patience * d.cfg.Turn)
		}
		return Decision{Forget: d.forget(now)}
	case raftpb.MsgTimeoutNow:
		d.asked, d.wish = now, Transfer
		if core.IsResignation(m) {
			d.wish = Resignation
		}
		if core.IsProcessDied(m) {
			d.asked = time.Time{} // nobody has wished it
		}
	case raftpb.MsgVote:
		if core.IsForcedVote(m) { // it does not say why the leader wished it
			d.asked, d.wish = now, Transfer
		}
		d.outrun(m.GetTerm(), term)
	}
	return Decision{}
}

// outrun notes that another has asked for votes, with a quorum's pre-votes behind it. Who
// votes for it stands back for an election timeout, as raft has it: the disks of two members
// write before it is elected, which may take longer than any turn.
func (d *Detector) outrun(asked, term uint64) {
	d.rival = d.rival || asked >= term
	if asked > term {
		d.back = d.silent + d.cfg.ElectionTicks
	}
}

// still notes a sign of life.
func (d *Detector) still(now time.Time) {
	d.heard, d.asked = now, time.Time{}
	d.silent, d.back, d.rival = 0, 0, false
}

// Refused tells that raft has refused to vote for the member whose request it stepped last, though
// it has voted for nobody in that term and knows no leader of it, whose entries may have overtaken
// the request: the candidate lacks an entry that this member has. If the
// leader has named it, this member stands in its turn. The leader's word may overtake its entries.
func (d *Detector) Refused(now time.Time) {
	if !d.asked.IsZero() {
		next := suspicion{way: Transfer, at: now, free: now}
		if d.hint.way == Obituary { // of which the candidate has heard, too
			next.way, next.term, next.at = Obituary, d.hint.term, d.hint.at
		}
		d.asked, d.back, d.hint = time.Time{}, 0, next
	}
}

// alive notes a sign of life, of a reign that is new or not. What the dead have sent in theirs is none.
func (d *Detector) alive(term uint64, now time.Time) {
	if d.hint.way == Obituary && term <= d.hint.term {
		return
	}
	d.still(now)
	d.learnt.heard(now)
	if d.hint.way == LearntSilence || d.hint.way == Obituary { // it is over, whenever that was sent
		d.hint = suspicion{}
	}
	if d.hint.way == Silence || now.Sub(d.hint.at) < d.cfg.Heartbeat {
		return // it may have been under way
	}
	d.hint = suspicion{}
	d.stats.FalseAlarms++
}

// quiet reports whether the leader is silent, as the dead are.
func (d *Detector) quiet(now time.Time) bool {
	return d.hint.way == Obituary || now.Sub(d.heard) >= quiet*d.cfg.Heartbeat
}

// forget reports whether the leader is to be forgotten: once for each suspicion, as soon
// as the promise to it has ended and it is silent.
func (d *Detector) forget(now time.Time) bool {
	if !d.suspected(now) || !d.hint.free.IsZero() || !d.quiet(now) {
		return false
	}
	d.hint.free = now
	if d.hint.way == restart {
		return false // raft knows no leader
	}
	d.stats.Forgets++
	return true
}

// Poll is called every Interval while Suspects says so, and after what has arrived was stepped.
// Once the promise to a leader that is suspected has ended, and it is silent, it is forgotten,
// and the members take turns to campaign.
func (d *Detector) Poll(now time.Time, k Known) (do Decision) {
	d.learnt.runs(now)
	if k.Leads || k.Away || k.Bound || !slices.Contains(k.Voters, d.cfg.Self) {
		return Decision{}
	}
	// Not before the promise has ended: until then it decides nothing, and may prove false.
	if d.hint.way == Silence && d.learnt.accuses(d.leader, now) {
		d.suspect(d.leader, LearntSilence, now)
	}
	if !d.suspected(now) {
		return Decision{}
	}
	do.Forget = d.forget(now)
	h := &d.hint
	if h.free.IsZero() || now.Before(h.yield) {
		return do
	}
	place, of := d.place(k.Voters)
	turn, length := d.turnAt(now.Sub(h.free), of)
	if turn%of != place || turn+1 == h.turn || k.Candidate && length < max(longTurn*2/3, 4*d.cfg.Turn) || !d.mayStand(k) {
		return do
	}
	do.Force = d.forces(k)
	h.turn, h.forced = turn+1, do.Force
	do.Campaign, d.rival = true, false
	return do
}

// mayStand reports whether to campaign disturbs no election that may be won: another's, or
// this member's own, which it gives up for a new one only where the vote was split, or no pre-vote has
// shown that anybody would vote: who holds after a restart lets no request in, and raft makes it once.
func (d *Detector) mayStand(k Known) bool {
	if k.Candidate {
		return d.rival || d.hint.forced
	}
	return d.silent >= d.back
}

// turnAt is the number of the turn so long after the leader was forgotten, and how long it
// lasts. Whenever all have had theirs, turns are twice as long: where those before were too
// short for messages to arrive in, the vote was split. Who stands, and has a rival, campaigns
// anew once a turn is as long as an election, for it will not win the one that it stands in.
func (d *Detector) turnAt(since time.Duration, of int) (turn int, length time.Duration) {
	for length = d.firstTurn(); since >= time.Duration(of)*length; length *= 2 {
		since -= time.Duration(of) * length
		turn += of
	}
	return turn + int(since/length), length
}

// place is the member's place among those who outlive the leader, and how many they are.
func (d *Detector) place(voters []uint64) (at, of int) {
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

// Tick is called at each tick of raft's, after which a member that has heard nothing of
// its leader campaigns in its turn.
//
// Raft draws each timeout from one to two election timeouts, so that two members rarely
// campaign at once. Members that know each other take turns instead, and then the first
// turn is due as soon as anybody would vote: just after one election timeout.
func (d *Detector) Tick(now time.Time, k Known) Decision {
	d.learnt.runs(now)
	d.stats.Limit = 0
	if !k.Leads && d.cfg.Learn > 0 {
		d.stats.Limit = d.learnt.limit(now)
	}
	due := d.due(k)
	d.rival = d.rival && !due
	return Decision{Campaign: due}
}

func (d *Detector) due(k Known) bool {
	d.silent++
	rank := slices.Index(k.Voters, d.cfg.Self)
	switch {
	case k.Leads, k.Away, k.Bound:
		return false
	case k.Candidate && (d.fresh || len(k.Voters) == 1): // its vote waits for the disk; raft's own timeout ends that
		return false
	case rank < 0: // a learner, or removed
		return false
	case len(k.Voters) == 1:
		return true
	case !d.mayStand(k):
		return false
	case d.fresh:
		// The lowest ID begins; the others are there if it does not.
		due := d.silent > rank*d.turn
		if due {
			d.silent = 0
		}
		return due
	case d.silent <= d.cfg.ElectionTicks:
		return false
	}
	// Turns go round. In each a member asks for pre-votes three times: at the first the others
	// may lack a tick until they would vote, and two may have asked at once.
	at, of := d.place(k.Voters)
	since, round := d.silent-d.cfg.ElectionTicks-1, d.turn*of
	o := since%round - d.turn*at
	if k.Candidate {
		// The vote was split: after a hint, by a turn shorter than the way, or by somebody whom
		// raft's own timeout has sent. If two turns do not mend it, it is the disks, and raft's
		// own timeouts give them longer than turns do.
		return o == 0 && since < 2*round
	}
	return o == 0 || o == d.turn/2 || o == d.turn*2/3
}

// Obituary tells that the leader's process is dead, and that this member's promise to it is void: a
// proof, of which Lease.Obituary has made m. Ask Poll next. The first to have its turn
// does so at once, silent or not, and is to campaign by m, which needs no pre-votes
// and which the votes of the others need not wait for; so is the next, a turn later, if nobody has asked for
// votes by then. After that it is as after a hint. Only a leader of a later term ends it: raft takes
// the dead for its leader once more if it steps what they have sent.
//
// Where Lease.Obituary has voided nothing, call Gone: the word may be of a former process.
func (d *Detector) Obituary(m *raftpb.Message, now time.Time) {
	peer := m.GetFrom()
	d.learnt.convicts(peer)
	if peer != d.leader || peer == raft.None || peer == d.cfg.Self || d.hint.way == Obituary {
		return
	}
	d.hint = suspicion{way: Obituary, at: now, term: m.GetTerm()}
	d.stats.Hints[Obituary]++
}

// forces reports whether the member is to campaign by the message of an obituary, in its first turn.
func (d *Detector) forces(k Known) bool {
	return d.hint.way == Obituary && d.hint.turn == 0 && !k.Candidate
}

// firstTurn is how long the first turns last. Twice as long after an obituary: no pre-vote tells the next
// member that another stands, and before its request leaves that one's term is on its disk. Shorter: where a disk
// takes 20 ms the vote is split. Longer: fail-over takes longer if the first is down.
func (d *Detector) firstTurn() time.Duration {
	if d.hint.way == Obituary {
		return 2 * d.cfg.Turn
	}
	return d.cfg.Turn
}
