package kvnode

import (
	"context"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// This file connects package detector to the loop. The detector decides when this member suspects its leader, and
// when it campaigns. The loop reports events to it, and carries out its decisions.

// Suspicions counts this member's suspicions of its leaders, and says how the last leader was replaced.
func (n *Node) Suspicions() detector.Stats { return *n.loop.suspicions.Load() }

// leaderTerm is a leader and its term. The same member may lead again in a later term, without the entries
// that it had not replicated.
type leaderTerm struct{ leader, term uint64 }

// learnBeats is the number of heartbeats for which the detector observes a leader before it may suspect that leader
// because it is silent. With fewer, a new cluster that stalls has an unnecessary election. With more, a leader that
// stops soon after its election is replaced only after an election timeout.
const learnBeats = 200

// newDetector returns the detector, before the loop runs.
func (l *raftLoop) newDetector() *detector.Detector {
	learn := learnBeats * l.cfg.TickInterval
	if l.cfg.IgnoreSilence {
		learn = 0
	}
	return detector.New(detector.Config{
		Self: l.self, Fresh: l.bootstrapEntries > 0, ElectionTicks: l.cfg.electionTicks(),
		Heartbeat: l.cfg.TickInterval, ElectionTimeout: l.cfg.ElectionTimeout, Observe: learn,
	}, time.Now())
}

// detectorView returns what the detector needs to know about this member. The voters are those of the applied
// registry. So a removed member that has not applied its removal may campaign; the others refuse its hello.
//
// A member is away before it is admitted, and until it has applied the configuration changes with which a new log
// begins: raft refuses to campaign before.
func (l *raftLoop) detectorView() detector.State {
	role := l.role
	k := detector.State{
		Leads: role == raft.StateLeader, Candidate: role == raft.StateCandidate,
		Away: !l.admission.IsOpen() || l.store.Applied() < l.bootstrapEntries,
	}
	// A member that is bound by a promise must not campaign: the lease would remove its vote requests (V4).
	// CanCampaign takes the lease's lock, so it is not called when the detector ignores Bound.
	if !k.Leads && !k.Away {
		k.Voters, k.Bound = l.store.Members().Voters(), l.lease.CanCampaign() != nil
	}
	return k
}

// admitted asks the detector at once when this member begins to take part: the others may be waiting for it.
func (l *raftLoop) admitted() { l.carryOut(l.detector.Tick(time.Now(), l.detectorView())) }

// carryOut carries out a decision of the detector.
func (l *raftLoop) carryOut(do detector.Decision) {
	if do.Forget {
		_ = l.raw.ForgetLeader() // always works for a follower; a candidate has no leader
	}
	if do.Campaign && !(do.Force && l.forceCampaign()) {
		// Raft ignores this while a configuration change is not applied. It campaigns after its own timeout as well.
		_ = l.raw.Campaign()
	}
}

// observe tells the detector about a message before raft steps it. Raft ignores a pre-vote request while it has a
// leader that it takes for alive, so the detector must be able to forget the leader first.
func (l *raftLoop) observe(m *raftpb.Message) {
	now := time.Now()
	l.carryOut(l.detector.Heard(m, l.leadership.Term(), now))
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		if l.role != raft.StateLeader { // a former leader that receives nothing still sends heartbeats to the new one
			l.cadence.beat(now)
		}
	case raftpb.MsgPreVote:
		l.pollSoon(now)
	}
}

// observeRefusal tells the detector that raft has just refused its vote to a candidate with a log that lacks entries.
// If raft has voted in m's term, or knows a leader of it, it had another reason to refuse.
func (l *raftLoop) observeRefusal(m *raftpb.Message) {
	if s := l.raw.BasicStatus(); s.GetTerm() == m.GetTerm() && s.GetVote() == raft.None && s.Lead == raft.None {
		now := time.Now()
		l.detector.Refused(now)
		l.pollSoon(now)
	}
}

// stepArrived steps all messages that have arrived from peers.
func (l *raftLoop) stepArrived() {
	for range len(l.control) {
		l.step(<-l.control)
	}
	for range len(l.bulk) {
		l.step(<-l.bulk)
	}
}

// connectionsEnded tells the detector that a peer has closed its last connection. Messages that arrived before are
// stepped first: if they came later, they would look like signs of life.
func (l *raftLoop) connectionsEnded(peer uint64) {
	l.stepArrived()
	now := time.Now()
	l.detector.Gone(peer, now)
	l.pollSoon(now)
}

// processDied handles a death notice. Messages that have arrived from the dead process are stepped first. If the
// notice voids this member's promise, the member does not wait for the end of the promise before it campaigns (V8).
// Otherwise the notice counts like a closed connection.
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
		l.deathCampaign = m
		l.detector.ProcessDied(m, now)
	case !l.cfg.IgnoreClosed:
		l.detector.Gone(peer, now)
	}
	l.pollDetector()
}

// forceCampaign steps the message that the lease made for a death notice, if it is still valid: its release makes the
// voters grant their votes at once. It reports whether it did.
func (l *raftLoop) forceCampaign() bool {
	m, s := l.deathCampaign, l.raw.BasicStatus()
	if m == nil || s.RaftState != raft.StateFollower || s.GetTerm() != m.GetTerm() || !l.lease.Incoming(m, leaderlease.ProcessID{}) {
		return false
	}
	l.step(m)
	return true
}

// pollDetector asks the detector about a suspected leader between two ticks. A promise may end just after a tick, and
// fail-over would wait for the next one. Messages that wait for the loop are stepped first: they may be the leader's.
func (l *raftLoop) pollDetector() {
	l.stepArrived()
	now := time.Now()
	l.carryOut(l.detector.Poll(now, l.detectorView()))
	l.pollSoon(now)
}

// pollSoon schedules pollDetector if the leader is suspected, or about to be.
func (l *raftLoop) pollSoon(now time.Time) {
	if l.detector.Suspects(now) {
		l.pollTimer.Reset(detector.Interval) // also drops a time that was not received yet
	}
}

// failProposals fails the proposals of which this member may never learn the outcome, once the leader or its term
// has changed. Repeatable proposals wait until the first entry of a later term is applied, which shows their
// outcome (proposals.Pending.TermReached). If this member has only forgotten its leader, nothing fails: that leader
// may still commit the proposals.
func (l *raftLoop) failProposals(lead uint64) {
	old, now := l.proposedTo, leaderTerm{lead, l.leadership.Term()}
	// A leader that steps down within its term (CheckQuorum) does fail its own proposals. There may be no leader for
	// long, and its clients can ask another member.
	if now == old || lead == raft.None && now.term == old.term && old.leader != l.self {
		return
	}
	l.proposedTo = now
	switch {
	case old.leader == raft.None:
	case now.term == old.term, l.writer.disk.IsUnusable(): // without a disk it applies no entry of a later term
		l.proposals.FailProposed()
	default:
		l.proposals.FailUnrepeatable()
	}
}

// publishSuspicions publishes the detector's statistics for Suspicions. It allocates only if they have changed.
func (l *raftLoop) publishSuspicions() {
	if now := l.detector.Stats(); l.suspicions.Load() == nil || *l.suspicions.Load() != now {
		l.suspicions.Store(new(now))
	}
}

// leaderSilence returns for how many ticks the detector has not heard the leader, 0 if this member stops.
func (c *calls) leaderSilence() int {
	ticks, _ := ask(context.Background(), c, func(l *raftLoop) int { return l.detector.Silence() })
	return ticks
}
