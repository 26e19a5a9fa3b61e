package core

import (
	"slices"
	"time"
)

// Guard is the voter's half: it keeps this node's promises. It has its own
// state, which survives term changes, a forgotten leader and everything else
// that raft's own lead and electionElapsed do not (V7).
type Guard struct {
	maxPromise  time.Duration
	incarnation Incarnation
	saved       saved
	// hold is the end of the restart hold, holdFor its length (V6).
	hold    Instant
	holdFor time.Duration
	// term is the newest term this node is known to be in.
	term uint64

	// promise is the newest one; until never moves back, except to 0 when a
	// release voids it.
	promise struct {
		leader, term uint64
		sent         Instant // on the leader's clock
		duration     time.Duration
		until        Instant // on this node's clock
		// process is the leader's. It is the zero value if it is unknown, or if probes of more
		// than one process came.
		process ProcessID
	}
	// owed is the newest until that a grant has told its leader of. A promise
	// that no grant has left for binds nobody's lease yet.
	owed Instant

	// release is the newest that this node was shown (L6). It goes out with the
	// forced votes of the campaign it causes. A probe it covers, delivered late,
	// asks for a promise that its leader would not count.
	release Release
	dead    dead
}

// NewGuard returns the guard of a node whose clock shows now and is known to
// leaders as i. It makes no promise longer than maxPromise. hold is how long the node may neither vote
// nor campaign, because its memory of earlier promises is gone: 0 only for a
// node that never took part in its group (V6).
func NewGuard(now Instant, i Incarnation, maxPromise, hold time.Duration) *Guard {
	g := &Guard{maxPromise: maxPromise, incarnation: i, holdFor: hold}
	longest := max(maxPromise, hold)
	g.Keep(longest, longest)
	if hold > 0 {
		g.hold = max(now, 0).Add(hold)
	}
	return g
}

// SetTerm tells the guard the term that raft is in.
func (g *Guard) SetTerm(term uint64) { g.term = max(g.term, term) }

// Promise answers a probe that came with a heartbeat of leader in term, before
// raft sees the heartbeat, and reports whether the promise was made (V1). One
// that asks for too much, or comes from a deposed leader, gets none. Nor does one that
// asks for more than what is durable covers: see Save. from is the process that sent the
// heartbeat, or the zero value.
func (g *Guard) Promise(leader, term uint64, p Probe, from ProcessID, now Instant) bool {
	if leader == 0 || term == 0 || term < max(g.term, g.promise.term) || !now.Valid() {
		return false
	}
	if p.Sent <= 0 || p.Duration <= 0 || p.Duration > g.maxPromise {
		return false
	}
	if term == g.release.Term && p.Sent <= g.release.At {
		return false
	}
	if term == g.promise.term && leader != g.promise.leader {
		return false // raft has one leader per term; this is not from raft
	}
	if g.dead.has(grave{leader, from}) {
		return false // nobody would count it, and it would bind this node (V8)
	}
	if !g.saved.covers(p.Duration) {
		return false
	}
	until := max(g.promise.until, now.Add(p.Duration))
	g.promiseTo(leader, term, from)
	if p.Sent >= g.promise.sent {
		g.promise.sent, g.promise.duration = p.Sent, p.Duration
	}
	g.promise.until = until
	return true
}

// promiseTo notes whom the newest promise is made to.
func (g *Guard) promiseTo(leader, term uint64, from ProcessID) {
	if term > g.promise.term {
		g.promise.leader, g.promise.term, g.promise.sent, g.promise.process = leader, term, 0, from
	}
	if from != g.promise.process {
		g.promise.process = ProcessID{} // for good: the process that relies on it is unknown
	}
}

// Grant returns what a heartbeat response to leader in term carries: the newest
// promise made to that leader in that term, if any (V2).
func (g *Guard) Grant(leader, term uint64, now Instant) (Grant, bool) {
	if term == 0 || leader != g.promise.leader || term != g.promise.term || g.promise.until == 0 || !now.Valid() {
		return Grant{}, false
	}
	g.owed = g.promise.until
	return Grant{
		Sent:        g.promise.sent,
		Duration:    g.promise.duration,
		Reading:     now,
		Incarnation: g.incarnation,
	}, true
}

// Bound reports whether this node must not help elect anyone, itself included:
// a promise or the restart hold has not ended (V3, V4, V5).
func (g *Guard) Bound(now Instant) bool { return now.Before(g.promise.until) || g.Held(now) }

// Owes reports whether a leader has been granted a promise that has not ended,
// or the restart hold has not. It is Bound less the promises that have not left
// yet, and decides about votes of this node that cannot be withheld (V5).
func (g *Guard) Owes(now Instant) bool { return now.Before(g.owed) || g.Held(now) }

// ClockStepped starts over at now, after the clock went back or was disrupted: it
// may have missed time or jumped ahead, and the machine may
// have gone back to a memory without its newest promises. Instants from before
// mean nothing any more. Whatever was promised ends within the longest promise,
// so the node holds for that long as after a restart.
func (g *Guard) ClockStepped(now Instant) {
	g.promise.until, g.owed = 0, 0
	g.incarnation = g.incarnation.Next()
	most := max(g.holdFor, g.maxPromise)
	g.saved.clockStepped(most)
	g.hold = now.Add(most)
}

// Restarted begins a restart hold of hold at now, for a node that turns out to have run
// before. Instants from before mean nothing any more, as after a step of the clock.
func (g *Guard) Restarted(now Instant, hold time.Duration) {
	g.holdFor = max(g.holdFor, hold)
	g.ClockStepped(now)
}

// Held reports whether the restart hold has not ended (V6).
func (g *Guard) Held(now Instant) bool { return now.Before(g.hold) }

// Admit decides whether an inbound MsgVote, MsgPreVote or MsgTimeoutNow may
// reach raft (V3). rel is the release that the message carries, if any. A
// release that covers the promise voids it; no release lifts the restart hold.
func (g *Guard) Admit(rel *Release, now Instant) bool {
	if rel != nil && g.covers(*rel) {
		g.promise.until, g.owed = 0, 0
		g.remember(*rel)
	}
	return !g.Bound(now)
}

// covers reports whether the leader that released does not rely on this node's
// promise: it is to an earlier leader, whose lease has ended or a later one
// would not exist, or it answers a probe that the release names (L6).
func (g *Guard) covers(rel Release) bool {
	if rel.Term == 0 || rel.At <= 0 {
		return false
	}
	return g.promise.term < rel.Term || (g.promise.term == rel.Term && g.promise.sent <= rel.At)
}

// remember keeps the newest release.
func (g *Guard) remember(rel Release) {
	if rel.Term > g.release.Term || (rel.Term == g.release.Term && rel.At > g.release.At) {
		g.release = rel
	}
}

// Released returns the release that an outbound forced vote for term passes on.
func (g *Guard) Released(term uint64) (Release, bool) {
	return g.release, g.release.Term != 0 && g.release.Term < term
}

// PromiseInfo is what Lease.Info shows of the voter's half.
type PromiseInfo struct {
	Leader, Term uint64
	// Remaining is how long this node is still bound by the promise, Hold how
	// long by its restart.
	Remaining, Hold time.Duration
	// Saved is how long a restart would bind it, at least.
	Saved time.Duration
}

// Info describes the promise as of now.
func (g *Guard) Info(now Instant) PromiseInfo {
	return PromiseInfo{
		Leader: g.promise.leader,
		Term:   g.promise.term,
		// No longer than either can be, whatever a failing clock shows.
		Remaining: min(max(g.promise.until.Sub(now), 0), g.maxPromise),
		Hold:      min(max(g.hold.Sub(now), 0), max(g.holdFor, g.maxPromise)),
		Saved:     g.saved.limit,
	}
}

// ProcessID identifies one process of one member. The zero value is an unknown process. No two
// processes of a member may share an ID, so it is random, or the hash of something random.
//
// An ID is public: each peer that the process connects to learns it. Whatever lets a caller of
// ProcessDied believe that the process is dead must be more than the ID.
type ProcessID [16]byte

// graves is how many dead processes a guard remembers. What one has sent is read within
// moments of its death. Fewer: where several die at once, what the first has sent binds this
// node once more, for as long as a promise lasts.
const graves = 4

// grave is a dead process of a member. The member is part of the key: a death of a process of one
// member never refuses a promise to another member.
type grave struct {
	member  uint64
	process ProcessID
}

// dead are the processes that have died last, the newest first. An unknown process is no entry.
type dead [graves]grave

func (d *dead) has(g grave) bool { return g.process != (ProcessID{}) && slices.Contains(d[:], g) }

func (d *dead) bury(g grave) {
	if d.has(g) {
		return
	}
	copy(d[1:], d[:])
	d[0] = g
}

// ProcessDied says that a process of leader will never execute another instruction (A3'). So
// no lease of that process relies on a promise any more. If this node's newest promise is to
// that very process, in a term that raft has not left yet, the promise is void (V8). ProcessDied
// then returns the release that this amounts to, and true. The release stays right, for all
// voters: a term and a leader name one process (V9), which has sent its last probe. ProcessDied
// does not lift the restart hold, since the promises of this node's former process are unknown.
//
// Messages that the dead process has sent, and that arrive later, get no promise.
func (g *Guard) ProcessDied(leader uint64, died ProcessID) (Release, bool) {
	if leader == 0 || died == (ProcessID{}) {
		return Release{}, false
	}
	g.dead.bury(grave{leader, died})
	p := &g.promise
	if p.leader != leader || p.process != died || p.term < g.term {
		return Release{}, false
	}
	p.until, g.owed = 0, 0
	rel := Release{Term: p.term, At: Forever}
	g.remember(rel)
	return rel, true
}

// saved is what stable storage holds about this node's promises: a duration that is no
// shorter than a promise that may not have ended. A restart holds for it (V6).
//
// It rises before the first longer promise is made. It falls once in a process at most:
// when the restart hold has ended, and with it all promises of earlier processes.
type saved struct {
	// limit bounds promises. Invariant: storage holds at least this.
	limit time.Duration
	// longest is the longest promise that this process has made or was asked for, and no
	// less than what a start saves. Invariant: it never decreases.
	longest time.Duration
}

// covers reports whether a promise of d may be made. If not, Save asks for d.
func (s *saved) covers(d time.Duration) bool {
	s.longest = max(s.longest, d)
	return d <= s.limit
}

// clockStepped is for a memory that may be older than storage: it lacks promises of up to
// most. Storage may have fallen to longest since, and no further: longest never decreases.
func (s *saved) clockStepped(most time.Duration) {
	s.limit, s.longest = min(s.limit, s.longest), max(s.longest, most)
}

// Keep tells the guard that stable storage holds d, and that the leader of this process
// asks for floor. Without it the guard makes promises up to the longest, saves nothing,
// and each restart holds for that.
func (g *Guard) Keep(floor, d time.Duration) { g.saved = saved{limit: d, longest: floor} }

// Save returns the duration that storage must hold from now on, if it is not what storage
// holds. Saved tells the guard that it is durable. The caller makes one durable at a time.
func (g *Guard) Save(now Instant) (d time.Duration, ok bool) {
	s := &g.saved
	falls := s.limit > s.longest
	if !now.Valid() || s.limit == s.longest || (falls && g.Held(now)) {
		return 0, false
	}
	s.limit = min(s.limit, s.longest) // before it is durable: storage may hold it any time now
	return s.longest, true
}

// Saved tells the guard that d is durable, as Save has asked for.
func (g *Guard) Saved(d time.Duration) { g.saved.limit = d }
