package kvnode

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/checkpoint"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/raftwal"
)

// handleReadys handles Readys until raft has none: handling one may bring about the next, such as committed
// entries that raft held back for their size. The loop calls it twice in each turn, and wherever the state
// must be up to date: before a proposal (proposals.Queue) and before a configuration change (applyConf).
func (l *raftLoop) handleReadys() {
	for l.raw.HasReady() {
		l.handleReady()
	}
}

// handleReady shows a Ready to the lease, sends its messages, and hands entries to the goroutines that
// write and apply them.
//
// The lease comes first. It publishes the end of a lease, which readers on other goroutines see from then
// on (L7), removes messages that its promises forbid, such as votes (V4), and stamps heartbeats with the
// time of sending. A message that is sent without it may help elect a leader beside a valid lease.
//
// Messages that say what this member has on its disk are not among those sent here: raft attaches them to
// the append message, and logWriter sends them once that is durable.
func (l *raftLoop) handleReady() {
	rd := l.raw.Ready()
	if rd.SoftState != nil {
		l.leadership.raftLeader.Store(rd.Lead)
	}
	l.lease.Ready(&rd)
	l.publish(&rd)
	var appendMsg, applyMsg *raftpb.Message
	out := l.outbox[:0]
	for _, m := range rd.Messages {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			appendMsg = m
		case m.GetTo() == raft.LocalApplyThread:
			applyMsg = m
		case m.GetType() == raftpb.MsgSnap:
			l.snapshots.Send(m)
		default:
			out = append(out, m)
		}
	}
	// The peers write while this member does. A leader's own disk is one of the quorum: raft counts this
	// member's acknowledgement when the append is answered, not before.
	l.links.Send(out)
	clear(out) // or the outbox would keep megabytes of entries in memory until the next Ready
	l.outbox = out
	// Neither goroutine waits for the other: raft hands out for applying only what is durable here
	// (Config.AsyncStorageWrites).
	if appendMsg != nil {
		l.writer.write(appendMsg)
	}
	if applyMsg != nil {
		l.jobs.Push(applyJob{entries: applyMsg.GetEntries(), responses: applyMsg.GetResponses()})
	}
}

// publish copies the role, the term and the ends of the log from a Ready, for goroutines other than the
// loop. It precedes all messages and writes of the Ready, so no other member learns of a new term from this
// one before this one has published the end of the former leader.
func (l *raftLoop) publish(rd *raft.Ready) {
	was := l.leadership.Term()
	if !raft.IsEmptyHardState(rd.HardState) {
		// The term precedes leadership.set, which copies it. With an old term LeadingTerm would be wrong,
		// and what this leader proposes for its term would have no effect (ErrFenced).
		l.leadership.term.Store(rd.HardState.GetTerm())
		if rd.HardState.GetCommit() > l.commit {
			l.detector.Committed(time.Now())
		}
		l.commit = rd.HardState.GetCommit()
	}
	// A snapshot replaces the log up to its index, and entries in the same Ready come after it.
	if !raft.IsEmptySnap(rd.Snapshot) {
		l.last.Store(rd.Snapshot.GetMetadata().GetIndex())
		l.restored = rd.Snapshot.GetMetadata().GetIndex()
	}
	if len(rd.Entries) > 0 {
		l.last.Store(rd.Entries[len(rd.Entries)-1].GetIndex())
	}
	// The soft state is nil unless it has changed.
	lead := l.leadership.Leader()
	if rd.SoftState != nil {
		l.role, lead = rd.RaftState, rd.Lead
	}
	l.failProposals(lead)
	// The same member may lead in a later term, without the proposals that it was handed before. Without a
	// change their clients would wait for ever.
	if lead != l.leadership.Leader() || lead != raft.None && l.leadership.Term() != was {
		l.setLeader(lead)
	}
}

// setLeader publishes another leader, or the same one in a later term, or none.
func (l *raftLoop) setLeader(lead uint64) {
	l.log.Info("leader", "leader", l.members.Label(lead), "was", l.members.Label(l.leadership.Leader()), "term", l.leadership.Term(), "role", l.role.String())
	l.detector.LeaderIs(lead, time.Now())
	l.publishSuspicions() // before set: a client that sees the leader sees how it was elected
	l.leadership.set(lead)
	l.queue.Unblock() // another leader may take proposals that the last one did not
}

// logWriter takes raft's updates to the disk, and delivers the responses once they are durable. The loop calls
// write, and the appender's goroutine does the rest.
type logWriter struct {
	// Immutable.
	self     uint64
	appender *raftwal.Appender
	disk     *checkpoint.Disk
	links    *transport.Transport
	jobs     *lifecycle.Mailbox[applyJob]        // to the applier
	local    *lifecycle.Mailbox[*raftpb.Message] // to raft
	life     *lifecycle.Lifecycle
	// markStarted records in the data directory that the log has begun, once in the life of a directory. It
	// returns false if that fails. Start refuses an empty log after that (ErrLost).
	markStarted func() bool
}

// write hands m to the appender. Responses are delivered in the order of the calls: each says that
// everything before it is durable, too, and raft counts it as an acknowledgement or a vote.
//
// The appender blocks only while more waits than raftwal's maxWaiting. Raft has less under way
// (maxUncommittedBytes on a leader, MaxInflightBytes on a follower), so the loop goes on while the disk
// hangs.
func (w *logWriter) write(m *raftpb.Message) {
	w.disk.WriteStarted() // the appender may be done before Append returns
	err := w.appender.Append(raftwal.UpdateOf(m), func(err error) { w.written(m, err) })
	if err != nil && !errors.Is(err, raftwal.ErrClosed) { // shutdown has closed it, and the loop may be late to see that
		w.life.Fail(err)
	}
}

// written runs on the appender's goroutine, for one m after the other, when m is durable or the log has
// failed. After a failure the member ends: after a failed sync it is unknown what the disk has, and a
// second sync that succeeds does not say.
func (w *logWriter) written(m *raftpb.Message, err error) {
	w.disk.WriteEnded() // also after a failure: the disk has answered
	if err != nil {
		w.life.Fail(fmt.Errorf("write the log: %w", err))
		return
	}
	w.disk.WriteSucceeded()
	// This precedes the first response: a member that votes, loses its log and takes itself for a new one
	// could vote again.
	if !w.markStarted() {
		return
	}
	if raft.IsEmptySnap(m.GetSnapshot()) {
		w.respond(m.GetResponses())
		return
	}
	// Raft counts a snapshot as applied once this is answered, so the store restores it first. Later
	// responses wait, as raft demands. The applier waits for nothing of the appender's. After a crash in
	// between, the next start restores the snapshot from its file (reconcile).
	done := make(chan struct{})
	w.jobs.Push(applyJob{restore: m.GetSnapshot(), done: done})
	select {
	case <-done:
		w.respond(m.GetResponses())
	case <-w.life.Stopping():
	}
}

// respond delivers the responses of a write: votes and acknowledgements to peers, the rest to this member's
// raft. They keep their order for each receiver. Nearly always all of them are for this member's raft, and
// nothing is copied.
func (w *logWriter) respond(msgs []*raftpb.Message) {
	var out []*raftpb.Message
	for i, m := range msgs {
		if m.GetTo() == w.self {
			continue
		}
		if out == nil {
			out = make([]*raftpb.Message, 0, len(msgs)-i)
		}
		out = append(out, m)
	}
	if out == nil {
		w.local.Push(msgs...)
		return
	}
	// Peers come first: a quorum waits for them, and the loop may be busy.
	w.links.Send(out)
	for _, m := range msgs {
		if m.GetTo() == w.self {
			w.local.Push(m)
		}
	}
}
