package core

import (
	"slices"
	"time"
)

// Guard is the voter's half: it keeps this node's promises. Its state is its own. It survives term
// changes, ForgetLeader and all else that resets raft's lead and electionElapsed (V7).
type Guard struct {
	maxPromise  time.Duration
	incarnation Incarnation
	saved       saved
	// holdUntil is the end of the restart hold, holdFor its length after a restart. After a step of the clock
	// the hold lasts for the longer of holdFor and maxPromise (V6).
	holdUntil Instant
	holdFor   time.Duration
	// term is the newest term this node is known to be in.
	term uint64

	// promise is the newest one. until never moves back, except to 0: by a release, a death, or a step of
	// the clock.
	promise struct {
		leader, term uint64
		sent         Instant // on the leader's clock
		duration     time.Duration
		until        Instant // on this node's clock
		// process is the leader's process. It is the zero value if it is unknown, or if probes of
		// more than one process arrived.
		process ProcessID
	}
	// owed is the end of the newest promise that a grant has reported to its leader. No lease relies on
	// a promise before its grant has left.
	owed Instant

	// release is the newest one that voided this node's promise (L6, V8). The forced votes of the next campaign
	// carry it. A late probe that was sent before it gets no promise: its leader would not count the grant.
	release Release
	dead    deaths
}

// NewGuard returns the guard of a node. Its clock shows now, and its grants carry i. It makes no
// promise longer than maxPromise. Until hold has passed, the node neither votes nor campaigns,
// because it does not remember earlier promises. hold is 0 only for a node that never took part in
// its group (V6).
func NewGuard(now Instant, i Incarnation, maxPromise, hold time.Duration) *Guard {
	g := &Guard{maxPromise: maxPromise, incarnation: i, holdFor: hold}
	longest := max(maxPromise, hold)
	g.SetStored(longest, longest)
	if hold > 0 {
		g.holdUntil = max(now, 0).Add(hold)
	}
	return g
}

// SetTerm tells the guard the term that raft is in.
func (g *Guard) SetTerm(term uint64) { g.term = max(g.term, term) }

// Promise decides whether to make the promise that a probe asks for (V1). The probe came with a
// heartbeat of leader in term, which raft has not seen yet. from is the process that sent it, or
// the zero value.
//
// The promise is refused if it is too long, if the leader is deposed or its process is dead, or if
// storage does not hold a duration that covers it yet: see BeginSave.
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
	if g.dead.has(deadProcess{leader, from}) {
		return false // no leader would count it, and it would bind this node (V8)
	}
	if !g.saved.ask(p.Duration) {
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

// promiseTo records the receiver of the newest promise.
func (g *Guard) promiseTo(leader, term uint64, from ProcessID) {
	if term > g.promise.term {
		g.promise.leader, g.promise.term, g.promise.sent, g.promise.process = leader, term, 0, from
	}
	if from != g.promise.process {
		g.promise.process = ProcessID{} // for the rest of this term: it is unknown which process relies on the promise
	}
}

// Grant returns what a heartbeat response to leader in term carries: the newest promise made to that
// leader in that term, if any (V2).
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

// Bound reports whether a promise or the restart hold has not ended. A bound node must not help to
// elect any node, itself included (V3, V4, V5).
func (g *Guard) Bound(now Instant) bool { return now.Before(g.promise.until) || g.InRestartHold(now) }

// Owes is Bound, but counts a promise only once a grant has reported it to the leader. It decides about this
// node's own vote, which raft counts without a message (V5).
func (g *Guard) Owes(now Instant) bool { return now.Before(g.owed) || g.InRestartHold(now) }

// StartOver is for a clock that went back or was disrupted, and for Restarted. The clock may have
// missed time or jumped ahead, and a restored machine may not remember its newest promises. Earlier
// instants mean nothing any more. All earlier promises end within the longest one, so the node holds
// for that long, as after a restart.
func (g *Guard) StartOver(now Instant) {
	g.promise.until, g.owed = 0, 0
	g.incarnation = g.incarnation.Next()
	hold := max(g.holdFor, g.maxPromise)
	g.saved.startOver(hold)
	g.holdUntil = now.Add(hold)
}

// Restarted begins a restart hold at now, for a node that turns out to have run before.
func (g *Guard) Restarted(now Instant, hold time.Duration) {
	g.holdFor = max(g.holdFor, hold)
	g.StartOver(now)
}

// InRestartHold reports whether the restart hold has not ended (V6).
func (g *Guard) InRestartHold(now Instant) bool { return now.Before(g.holdUntil) }

// Admit decides whether an inbound MsgVote, MsgPreVote or MsgTimeoutNow may reach raft (V3). rel is
// the release that the message carries, if any. A release that covers the promise voids it. No
// release lifts the restart hold.
func (g *Guard) Admit(rel *Release, now Instant) bool {
	if rel != nil && g.covers(*rel) {
		g.promise.until, g.owed = 0, 0
		g.remember(*rel)
	}
	return !g.Bound(now)
}

// covers reports whether rel proves that no lease relies on this node's promise (L6). Either the
// promise is to an earlier leader, and the lease of that leader ended before a later one was elected. Or
// the release covers the probe of the promise.
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

// PromiseInfo describes the promise of a node to a leader, and its restart hold.
type PromiseInfo struct {
	Leader, Term uint64
	// Remaining is the rest of the promise, Hold the rest of the restart hold.
	Remaining, Hold time.Duration
	// Saved is the least time for which a restart now would hold; without Config.Promises, MaxPromise.
	Saved time.Duration
}

// Info describes the promise as of now.
func (g *Guard) Info(now Instant) PromiseInfo {
	return PromiseInfo{
		Leader: g.promise.leader,
		Term:   g.promise.term,
		// A failing clock must not show more than is possible.
		Remaining: min(max(g.promise.until.Sub(now), 0), g.maxPromise),
		Hold:      min(max(g.holdUntil.Sub(now), 0), max(g.holdFor, g.maxPromise)),
		Saved:     g.saved.limit,
	}
}

// ProcessID identifies one process of one member, and is not the operating system's process ID. The zero
// value is an unknown process. No two processes of a member may share an ID, so it is random, or the hash
// of a random value.
//
// An ID is public: every peer of the process knows it. A caller of ProcessDied needs a better proof
// of death than the ID.
type ProcessID [16]byte

// maxDeaths is how many dead processes a guard remembers. The last messages of a process arrive
// within moments of its death. With fewer, and several deaths at once, a late probe of the first one
// would bind this node again for the length of a promise.
const maxDeaths = 4

// deadProcess is a dead process of a member. A death in one member refuses no promise to another.
type deadProcess struct {
	member  uint64
	process ProcessID
}

// deaths are the newest dead processes, newest first. An unknown process is never among them.
type deaths [maxDeaths]deadProcess

func (d *deaths) has(p deadProcess) bool {
	return p.process != (ProcessID{}) && slices.Contains(d[:], p)
}

func (d *deaths) add(p deadProcess) {
	if d.has(p) {
		return
	}
	copy(d[1:], d[:])
	d[0] = p
}

// ProcessDied records that a process of leader will never execute another instruction (assumption A3' of
// package leaderlease). If this node's newest promise is to that very process, in a term that raft has
// not left yet, no lease relies on the promise any more, and it is void (V8). ProcessDied then returns
// the equivalent release, and true.
//
// The release is right for all voters: one process leads in a term (V9), and this one has sent its
// last probe. The restart hold remains, since the promises of this node's former process are
// unknown. Late messages of the dead process get no promise.
func (g *Guard) ProcessDied(leader uint64, died ProcessID) (Release, bool) {
	if leader == 0 || died == (ProcessID{}) {
		return Release{}, false
	}
	g.dead.add(deadProcess{leader, died})
	p := &g.promise
	if p.leader != leader || p.process != died || p.term < g.term {
		return Release{}, false
	}
	p.until, g.owed = 0, 0
	rel := Release{Term: p.term, At: Forever}
	g.remember(rel)
	return rel, true
}

// saved is what stable storage holds about this node's promises: a duration at least as long as
// every promise that may still bind this node. It is the length of the restart hold (V6).
//
// It rises before the first longer promise is made. It falls at most once in a process: when the
// restart hold has ended, and with it all promises of earlier processes.
type saved struct {
	// limit bounds promises. Invariant: storage holds at least this.
	limit time.Duration
	// longest is the longest promise that this process was asked for, and at least the floor of
	// SetStored. Invariant: it never decreases.
	longest time.Duration
}

// ask reports whether a promise of d may be made. If not, BeginSave asks for d.
func (s *saved) ask(d time.Duration) bool {
	s.longest = max(s.longest, d)
	return d <= s.limit
}

// startOver is for a machine that may have been restored, so that its memory is older than its storage.
// Storage may hold s.longest by now, so s.limit must not be higher. The node may have forgotten promises
// as long as hold, so s.longest must not be lower.
func (s *saved) startOver(hold time.Duration) {
	s.limit, s.longest = min(s.limit, s.longest), max(s.longest, hold)
}

// SetStored tells the guard which duration stable storage holds, and that BeginSave may lower it to floor after
// the restart hold. Without this call BeginSave never asks for a write, and each restart holds for the longest
// promise.
func (g *Guard) SetStored(floor, stored time.Duration) {
	g.saved = saved{limit: stored, longest: floor}
}

// BeginSave returns the duration that storage must hold from now on, and false if there is nothing to save
// at now. Call Saved once it is durable, before another BeginSave.
func (g *Guard) BeginSave(now Instant) (longest time.Duration, ok bool) {
	s := &g.saved
	falls := s.limit > s.longest
	if !now.Valid() || s.limit == s.longest || (falls && g.InRestartHold(now)) {
		return 0, false
	}
	s.limit = min(s.limit, s.longest) // before it is durable: storage may hold it any time now
	return s.longest, true
}

// Saved tells the guard that d is durable, as BeginSave has asked for.
func (g *Guard) Saved(d time.Duration) { g.saved.limit = d }
