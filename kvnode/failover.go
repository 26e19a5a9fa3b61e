package kvnode

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// When this member takes its leader for dead and campaigns, package detector decides. Here
// is what it is told, and what is done then. All of that is in the loop.

// handed is who was handed proposals, and in which term. A reign is both: the same member may
// lead again in a later term, without the entries that it had not replicated.
type handed struct{ leader, term uint64 }

// learnBeats is for how many heartbeats a leader is watched before its silence is a hint. Fewer:
// a cluster that has just begun, and stalls, has one election more. More: a leader that stops
// soon after another one did is replaced after an election timeout.
const learnBeats = 200

// newDetector is called before the loop runs.
func (l *raftLoop) newDetector() *detector.Detector {
	learn := learnBeats * l.cfg.TickInterval
	if l.cfg.IgnoreSilence {
		learn = 0
	}
	return detector.New(detector.Config{
		Self: l.ID(), Fresh: l.firstEntries > 0, ElectionTicks: l.cfg.electionTicks(),
		Heartbeat: l.cfg.TickInterval, ElectionTimeout: l.cfg.ElectionTimeout, Learn: learn,
	}, time.Now())
}

// standing is what decides at this moment whether the member campaigns. The voters are the
// registry's, as applied, like raft's own: a member that was removed and has not applied it yet
// may campaign, and those who have applied it refuse its hello.
//
// Away: raft refuses to campaign while changes of the configuration wait to be applied, and the
// entries that begin a log are such changes.
func (l *raftLoop) standing() detector.Known {
	role := l.role
	k := detector.Known{
		Leads: role == raft.StateLeader, Candidate: role == raft.StateCandidate,
		Away: !l.admission.IsOpen() || l.store.Applied() < l.firstEntries,
	}
	// A bound member must not campaign: V4 would take its requests away. It is not asked about one
	// for whom that decides nothing, as the answer takes the lock of the lease.
	if !k.Leads && !k.Away {
		k.Voters, k.Bound = l.store.Members().Voters(), l.lease.CanCampaign() != nil
	}
	return k
}

// elect does what was decided.
func (l *raftLoop) elect(do detector.Decision) {
	if do.Forget {
		_ = l.raw.ForgetLeader() // a follower can, and whoever is none has forgotten it
	}
	if do.Campaign && !(do.Force && l.force()) {
		// Raft refuses while a configuration change waits to be applied, and asks
		// again by itself after its own timeout.
		_ = l.raw.Campaign()
	}
}

// hear tells of a message that raft is about to step. Before it does: raft ignores a
// request for a pre-vote while it takes its leader for alive, which is to be forgotten first.
func (l *raftLoop) hear(m *raftpb.Message) {
	now := time.Now()
	l.elect(l.detector.Heard(m, l.leadership.Term(), now))
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		if l.role != raft.StateLeader { // a leader hears a former one, to whom nothing gets through
			l.cadence.beat(now)
		}
	case raftpb.MsgPreVote:
		l.pollSoon(now)
	}
}

// refused tells that raft has just refused its vote to a candidate that lacks entries, and not to
// one whose first entries have overtaken its request.
func (l *raftLoop) refused(m *raftpb.Message) {
	if s := l.raw.BasicStatus(); s.GetTerm() == m.GetTerm() && s.GetVote() == raft.None && s.Lead == raft.None {
		now := time.Now()
		l.detector.Refused(now)
		l.pollSoon(now)
	}
}

// stepArrived steps what has come from peers. Nobody else takes from the channels.
func (l *raftLoop) stepArrived() {
	for range len(l.urgent) {
		l.step(<-l.urgent)
	}
	for range len(l.bulk) {
		l.step(<-l.bulk)
	}
}

// gone tells that a peer has ended its last connection. What came before that is stepped
// first: later it would be a sign of life.
func (l *raftLoop) gone(peer uint64) {
	l.stepArrived()
	now := time.Now()
	l.detector.Gone(peer, now)
	l.pollSoon(now)
}

// died takes an obituary. What had come from the dead process is stepped first, as before a hint. If it
// voids the promise, this member campaigns in its turn without waiting for anything (V8); if not, it
// is a hint like another: of a former process, say, or while this member is in its restart hold.
func (l *raftLoop) died(peer uint64, process leaderlease.ProcessID) {
	l.stepArrived()
	l.handleReadys() // the dead may just have been elected
	now := time.Now()
	m, void := l.lease.ProcessDied(peer, process)
	if void || l.logLimits.died.Allow(peer) { // without TLS anybody can say so, and a line may hold up the loop
		l.log.Info("a member's process has died", "peer", l.book.called(peer), "promise_void", void)
	}
	switch {
	case void:
		l.afterDeath = m
		l.detector.Obituary(m, now)
	case !l.cfg.IgnoreClosed:
		l.detector.Gone(peer, now)
	}
	l.askDetector()
}

// force campaigns by what an obituary has made, and reports whether it did.
func (l *raftLoop) force() bool {
	m, s := l.afterDeath, l.raw.BasicStatus()
	if m == nil || s.RaftState != raft.StateFollower || s.GetTerm() != m.GetTerm() || !l.lease.Incoming(m, leaderlease.ProcessID{}) {
		return false
	}
	l.step(m)
	return true
}

// askDetector asks what is to be done about a leader that is suspected. Between ticks: a promise
// may end just after one, and fail-over would wait for the next. What waits for the loop is no
// silence of the leader's.
func (l *raftLoop) askDetector() {
	l.stepArrived()
	now := time.Now()
	l.elect(l.detector.Poll(now, l.standing()))
	l.pollSoon(now)
}

// pollSoon lets askDetector be called soon, if the leader is suspected, or about to be.
func (l *raftLoop) pollSoon(now time.Time) {
	if l.detector.Suspects(now) {
		l.poll.Reset(detector.Interval) // one that has fired and was not received delivers nothing more
	}
}

// endReign ends the wait for a leader once the term has risen: what was handed to it may be lost
// with its log, or on the way, or be committed by the next one. What has that term for a fence waits
// until the first entry of a later one is applied, and shows which (proposals.Pending.TermReached); the rest fails
// with ErrLeaderChanged. A leader that was only forgotten may still take it, and be known again.
func (l *raftLoop) endReign(lead uint64) {
	old, now := l.handed, handed{lead, l.leadership.Term()}
	// A leader that has stepped down within its term (CheckQuorum) fails all of its own: nobody may
	// be elected for long, and its clients find other members sooner.
	if now == old || lead == raft.None && now.term == old.term && old.leader != l.ID() {
		return
	}
	l.handed = now
	switch {
	case old.leader == raft.None:
	case now.term == old.term, l.appends.disk.unusable(): // without a disk nobody here will see that entry
		l.proposals.FailProposed()
	default:
		l.proposals.FailUnfenced()
	}
}

// showSuspicions makes known what Status tells. It is asked at each tick, and allocates only where
// something has changed.
func (l *raftLoop) showSuspicions() {
	if now := l.detector.Stats(); l.suspicions.Load() == nil || *l.suspicions.Load() != now {
		l.suspicions.Store(&now)
	}
}
