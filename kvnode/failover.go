package kvnode

import (
	"context"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// This file connects package detector to the loop. The detector decides when this member suspects its
// leader and campaigns. The loop tells it what happens, and does what it decides.

// Suspicions returns what this member has suspected its leaders of, and how the last one was replaced.
func (n *Node) Suspicions() detector.Stats { return *n.loop.suspicions.Load() }

// leaderTerm is a leader and its term. The same member may lead again in a later term, without the entries
// that it had not replicated.
type leaderTerm struct{ leader, term uint64 }

// learnBeats is the number of heartbeats after which the silence of a leader is a suspicion. With fewer, a
// new cluster that stalls has an unnecessary election. With more, a leader that stops soon after its
// election is replaced only after an election timeout.
const learnBeats = 200

// newDetector returns the detector, before the loop runs.
func (l *raftLoop) newDetector() *detector.Detector {
	learn := learnBeats * l.cfg.TickInterval
	if l.cfg.IgnoreSilence {
		learn = 0
	}
	return detector.New(detector.Config{
		Self: l.self, Fresh: l.firstEntries > 0, ElectionTicks: l.cfg.electionTicks(),
		Heartbeat: l.cfg.TickInterval, ElectionTimeout: l.cfg.ElectionTimeout, Observe: learn,
	}, time.Now())
}

// standing returns what the detector needs to know about this member. The voters are those of the applied
// registry, like raft's own: a removed member that has not applied its removal may campaign, and the others
// refuse its hello.
//
// A member is away while raft refuses to campaign because configuration changes are not applied, which
// includes the first entries of a log.
func (l *raftLoop) standing() detector.Known {
	role := l.role
	k := detector.Known{
		Leads: role == raft.StateLeader, Candidate: role == raft.StateCandidate,
		Away: !l.admission.IsOpen() || l.store.Applied() < l.firstEntries,
	}
	// A member that is bound by a promise must not campaign: V4 would remove its requests. The lease is not
	// asked where that decides nothing, because CanCampaign takes its lock.
	if !k.Leads && !k.Away {
		k.Voters, k.Bound = l.store.Members().Voters(), l.lease.CanCampaign() != nil
	}
	return k
}

// admitted asks the detector at once when this member begins to take part: the others may be waiting for it.
func (l *raftLoop) admitted() { l.elect(l.detector.Tick(time.Now(), l.standing())) }

// elect does what the detector has decided.
func (l *raftLoop) elect(do detector.Decision) {
	if do.Forget {
		_ = l.raw.ForgetLeader() // a follower can, and a candidate has forgotten it
	}
	if do.Campaign && !(do.Force && l.forceCampaign()) {
		// Raft refuses while a configuration change is not applied, and campaigns by itself after its own
		// timeout.
		_ = l.raw.Campaign()
	}
}

// observe tells the detector about a message before raft steps it: raft ignores a pre-vote request while it
// takes its leader for alive, so the leader must be forgotten first.
func (l *raftLoop) observe(m *raftpb.Message) {
	now := time.Now()
	l.elect(l.detector.Heard(m, l.leadership.Term(), now))
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		if l.role != raft.StateLeader { // a former leader that nothing reaches may send one to the leader
			l.cadence.beat(now)
		}
	case raftpb.MsgPreVote:
		l.pollSoon(now)
	}
}

// observeRefusal tells the detector that raft has just refused its vote to a candidate that lacks entries,
// and not to one that sent its first entries before its request arrived.
func (l *raftLoop) observeRefusal(m *raftpb.Message) {
	if s := l.raw.BasicStatus(); s.GetTerm() == m.GetTerm() && s.GetVote() == raft.None && s.Lead == raft.None {
		now := time.Now()
		l.detector.Refused(now)
		l.pollSoon(now)
	}
}

// stepArrived steps all messages that have arrived from peers.
func (l *raftLoop) stepArrived() {
	for range len(l.urgent) {
		l.step(<-l.urgent)
	}
	for range len(l.bulk) {
		l.step(<-l.bulk)
	}
}

// connectionsEnded tells the detector that a peer has closed its last connection. Messages from before are
// stepped first, or they would count as signs of life.
func (l *raftLoop) connectionsEnded(peer uint64) {
	l.stepArrived()
	now := time.Now()
	l.detector.Gone(peer, now)
	l.pollSoon(now)
}

// processDied takes a death notice. Messages that had come from the dead process are stepped first. If the
// notice voids the promise, this member campaigns in its turn without waiting (V8). Otherwise the notice is
// a suspicion like a closed connection: it is about an earlier process, or this member is in its restart
// hold.
func (l *raftLoop) processDied(peer uint64, process leaderlease.ProcessID) {
	l.stepArrived()
	l.handleReadys() // the dead process may just have been elected
	now := time.Now()
	m, void := l.lease.ProcessDied(peer, process)
	if void || l.logLimits.died.Allow(peer) { // without TLS any program can send notices, and a line may delay the loop
		l.log.Info("a member's process has died", "peer", l.members.Label(peer), "promise_void", void)
	}
	switch {
	case void:
		l.afterDeath = m
		l.detector.ProcessDied(m, now)
	case !l.cfg.IgnoreClosed:
		l.detector.Gone(peer, now)
	}
	l.pollDetector()
}

// forceCampaign campaigns with the message that a death notice has made, and reports whether it did.
func (l *raftLoop) forceCampaign() bool {
	m, s := l.afterDeath, l.raw.BasicStatus()
	if m == nil || s.RaftState != raft.StateFollower || s.GetTerm() != m.GetTerm() || !l.lease.Incoming(m, leaderlease.ProcessID{}) {
		return false
	}
	l.step(m)
	return true
}

// pollDetector asks the detector about a suspected leader between ticks: a promise may end just after one,
// and fail-over would wait for the next. Messages that wait for the loop are stepped first, because they
// end the leader's silence.
func (l *raftLoop) pollDetector() {
	l.stepArrived()
	now := time.Now()
	l.elect(l.detector.Poll(now, l.standing()))
	l.pollSoon(now)
}

// pollSoon schedules pollDetector if the leader is suspected, or about to be.
func (l *raftLoop) pollSoon(now time.Time) {
	if l.detector.Suspects(now) {
		l.poll.Reset(detector.Interval) // a timer that has fired and was not received delivers nothing more
	}
}

// failProposals fails proposals with an unknown outcome, once the leader or its term has changed: they may
// be lost with the leader's log, or on the way, or the next leader may commit them. Those that
// require their term wait until the first entry of a later term is applied, which shows their outcome
// (proposals.Pending.TermReached). A leader that was only forgotten may still take them, and be known
// again, so nothing fails then.
func (l *raftLoop) failProposals(lead uint64) {
	old, now := l.proposedTo, leaderTerm{lead, l.leadership.Term()}
	// A leader that steps down within its term (CheckQuorum) fails all of its own proposals: there may be
	// no leader for long, and its clients find other members sooner.
	if now == old || lead == raft.None && now.term == old.term && old.leader != l.self {
		return
	}
	l.proposedTo = now
	switch {
	case old.leader == raft.None:
	case now.term == old.term, l.writer.disk.IsUnusable(): // without a disk this member will not apply that entry
		l.proposals.FailProposed()
	default:
		l.proposals.FailUnfenced()
	}
}

// publishSuspicions publishes the detector's statistics for Suspicions. It allocates only if they have changed.
func (l *raftLoop) publishSuspicions() {
	if now := l.detector.Stats(); l.suspicions.Load() == nil || *l.suspicions.Load() != now {
		l.suspicions.Store(&now)
	}
}

// leaderSilence returns for how many ticks the leader has not been heard, 0 if this member stops.
func (c *calls) leaderSilence() int {
	ticks, _ := ask(context.Background(), c, func(l *raftLoop) int { return l.detector.Silence() })
	return ticks
}
