package kvnode

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// handleReadys goes on until raft has nothing to say: handling one Ready may bring about
// the next, as what is committed does that raft has held back for its size. It comes twice in
// each turn, and wherever raft must have said what it knows before it is told more: before a
// proposal (proposals.Queue) and before a change of the configuration (applyConf).
func (l *raftLoop) handleReadys() {
	for l.raw.HasReady() {
		l.handleReady()
	}
}

// handleReady gives the lease the first look, then sends, then hands what is to
// be kept and what is to be applied to their goroutines.
//
// The lease comes first since it takes messages away that its promises forbid (a vote, most
// of all) and stamps heartbeats with the instant of their sending: what is sent without it
// may help elect a leader beside a valid lease. Messages that say what this member has on
// its disk are not among those sent here: raft attaches them to the append message, and
// they go out once that is durable (appended).
func (l *raftLoop) handleReady() {
	rd := l.raw.Ready()
	if rd.SoftState != nil {
		l.follows.Store(rd.Lead)
	}
	// Give up first, act second (L7): it publishes the end of a lease, which readers on other
	// goroutines see from then on, and takes messages away (V4) before anybody looks at them.
	l.lease.Ready(&rd)
	l.follow(&rd) // before anything is sent: see there
	var appendMsg, applyMsg *raftpb.Message
	out := l.outbox[:0]
	for _, m := range rd.Messages {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			appendMsg = m
		case m.GetTo() == raft.LocalApplyThread:
			applyMsg = m
		case m.GetType() == raftpb.MsgSnap:
			l.sendSnapshot(m)
		default:
			out = append(out, m)
		}
	}
	// The peers write while this member does. A leader's own disk is one of the quorum: raft
	// counts this member's acknowledgement when the append is answered, not before.
	l.links.Send(out)
	// The queues of the links hold the messages from here on. An outbox that still led to them
	// would keep megabytes of entries in memory until the next Ready writes over it.
	clear(out)
	l.outbox = out
	// Each goes to its goroutine in the order of the Readys, and neither waits for the other:
	// raft hands out for applying what is durable here already (Config.AsyncStorageWrites).
	if appendMsg != nil {
		l.appends.put(appendMsg)
	}
	if applyMsg != nil {
		l.jobs.Push(applyJob{entries: applyMsg.GetEntries(), responses: applyMsg.GetResponses()})
	}
}

// follow takes over what raft says about role, term and log, for those who ask without
// going through the loop. It runs before anything of the Ready is sent or written, so a
// reign is known to be over before anybody can hear of the next one from this member.
func (l *raftLoop) follow(rd *raft.Ready) {
	was := l.leadership.Term()
	if !raft.IsEmptyHardState(rd.HardState) {
		// Before setLeader, which copies it: a leadership with the term before would make LeadingTerm
		// wrong, and void (ErrFenced) whatever this reign proposes for itself.
		l.leadership.term.Store(rd.HardState.GetTerm())
		if rd.HardState.GetCommit() > l.commit {
			l.detector.Committed(time.Now())
		}
		l.commit = rd.HardState.GetCommit() // by which the queue knows that a batch is committed
	}
	// The snapshot replaces the log up to its index, and entries in the same Ready come behind
	// it. So last is set by the snapshot first.
	if !raft.IsEmptySnap(rd.Snapshot) {
		l.last.Store(rd.Snapshot.GetMetadata().GetIndex())
		l.restored = rd.Snapshot.GetMetadata().GetIndex()
	}
	if len(rd.Entries) > 0 {
		l.last.Store(rd.Entries[len(rd.Entries)-1].GetIndex())
	}
	// Raft tells of the soft state only where that has changed.
	lead := l.leadership.Leader()
	if rd.SoftState != nil {
		l.role, lead = rd.RaftState, rd.Lead
	}
	l.endReign(lead)
	// The same member may lead again, and have forgotten what it was handed before: who waits
	// for that would wait for ever, since no leader's name has changed.
	if lead != l.leadership.Leader() || lead != raft.None && l.leadership.Term() != was {
		l.followLeader(lead)
	}
}

// followLeader notes that a reign has begun, or that one is over.
func (l *raftLoop) followLeader(lead uint64) {
	l.log.Info("leader", "leader", l.book.called(lead), "was", l.book.called(l.leadership.Leader()), "term", l.leadership.Term(), "role", l.role.String())
	l.detector.LeaderIs(lead, time.Now())
	l.showSuspicions() // first: who sees the leader sees how it came to lead
	l.leadership.set(lead)
	l.queue.Unblock() // what the last leader did not take this one may
}
