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

// handleReadys handles Readys until raft has none. One Ready may follow another, for example because raft held back
// committed entries for their size.
func (l *raftLoop) handleReadys() {
	for l.raw.HasReady() {
		l.handleReady()
	}
}

// handleReady shows a Ready to the lease, sends its messages, and hands entries to the goroutines that write and
// apply them.
//
// The lease sees the Ready first. If this Ready ends the lease, it refuses reads from then on (L7). It removes
// messages that this member's promises forbid, such as votes (V4), and puts the time of sending into heartbeats. A
// message that bypasses the lease may help to elect a leader while another one holds a valid lease.
//
// Messages that rely on what this member has on its disk are not in Messages: raft attaches them to the append
// message, and logWriter sends them once that is durable.
func (l *raftLoop) handleReady() {
	rd := l.raw.Ready()
	if rd.SoftState != nil {
		l.leadership.raftLeader.Store(rd.Lead)
	}
	l.lease.Ready(&rd)
	l.publishState(&rd)
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
	// The messages are sent before the entries are durable here, so the peers write them at the same time. Raft
	// counts a leader's own acknowledgement only when the append is answered.
	l.links.Send(out)
	clear(out) // or the outbox would keep megabytes of entries in memory until the next Ready
	l.outbox = out
	// Both goroutines may work at the same time: raft hands out for applying only entries that are durable here
	// (Config.AsyncStorageWrites).
	if appendMsg != nil {
		l.writer.write(appendMsg)
	}
	if applyMsg != nil {
		l.jobs.Push(applyJob{entries: applyMsg.GetEntries(), responses: applyMsg.GetResponses()})
	}
}

// publishState copies the role, the leader, the term, the commit index and the end of the log from a Ready. It precedes
// the messages and writes of the Ready, so this member does not tell another one of a new term while it still shows
// the former leader.
func (l *raftLoop) publishState(rd *raft.Ready) {
	was := l.leadership.Term()
	if !raft.IsEmptyHardState(rd.HardState) {
		// The term is stored before leadership.set copies it. With the old one, LeadingTerm would be wrong, and
		// proposals with it as their required term would have no effect (ErrFenced).
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
	// The same member may lead again in a later term. That is a change, too: LeadingTerm, the TTL engine and waiting
	// reads depend on the term.
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
	l.queue.Unblock() // this leader may take proposals that the last one did not
}

// logWriter hands raft's updates to the appender, and delivers raft's responses once they are durable. write runs on
// the loop, and written on the appender's goroutine.
type logWriter struct {
	// Immutable.
	self     uint64
	appender *raftwal.Appender
	disk     *checkpoint.Disk
	links    *transport.Transport
	jobs     *lifecycle.Mailbox[applyJob]        // to the applier
	local    *lifecycle.Mailbox[*raftpb.Message] // to raft
	life     *lifecycle.Lifecycle
	// markStarted records in the data directory, once, that its log is not empty any more, and returns false if that
	// fails. Afterwards, Start refuses an empty log (ErrLost).
	markStarted func() bool
}

// write hands m to the appender. Responses are delivered in the order of the calls, because each one means that
// everything before it is durable, too.
//
// Append blocks while more bytes wait than raftwal's maxWaiting. Raft has less under way (maxUncommittedBytes on a
// leader, MaxInflightBytes on a follower), so the loop does not block while the disk hangs.
func (w *logWriter) write(m *raftpb.Message) {
	w.disk.WriteStarted() // the appender may be done before Append returns
	err := w.appender.Append(raftwal.UpdateOf(m), func(err error) { w.written(m, err) })
	if err != nil && !errors.Is(err, raftwal.ErrClosed) { // shutdown may close the appender while the loop still runs
		w.life.Fail(err)
	}
}

// written runs on the appender's goroutine, in the order of the writes, when m is durable or has failed. After a
// failure the member stops: what a failed sync has left on the disk is unknown, even if a second sync succeeds.
func (w *logWriter) written(m *raftpb.Message, err error) {
	w.disk.WriteEnded() // also after a failure: the disk has answered
	if err != nil {
		w.life.Fail(fmt.Errorf("write the log: %w", err))
		return
	}
	w.disk.WriteSucceeded()
	// This precedes the first response. Otherwise a member that has voted and then lost its log could start as a new
	// one, and vote again.
	if !w.markStarted() {
		return
	}
	if raft.IsEmptySnap(m.GetSnapshot()) {
		w.respond(m.GetResponses())
		return
	}
	// Once this is answered, raft takes the snapshot for applied, so the store restores it first. Later responses
	// wait for it, because raft needs them in order. This is no deadlock: the applier never waits for this
	// goroutine.
	done := make(chan struct{})
	w.jobs.Push(applyJob{restore: m.GetSnapshot(), done: done})
	select {
	case <-done:
		w.respond(m.GetResponses())
	case <-w.life.Stopping():
	}
}

// respond delivers the responses of a write: votes and acknowledgements to peers, the rest to this member's raft.
// They keep their order for each receiver. On a leader nearly all writes have responses for its own raft only, and
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
