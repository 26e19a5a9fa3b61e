package kvnode

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/raftwal"
)

// appends are what raft wants to keep, on its way to the disk, and the answers to it. The loop
// puts, the appender's goroutine does the rest; no field changes while they run.
type appends struct {
	*parts
	disk     *disk
	appender *raftwal.Appender
	jobs     *lifecycle.Mailbox[applyJob]        // to the applier
	local    *lifecycle.Mailbox[*raftpb.Message] // to raft
}

// put hands m to the appender. Its answers are delivered when it is durable, in the order of
// the calls: an answer says that everything before it is durable, too, and raft counts it as a
// vote for an entry, or as one in an election.
//
// The appender lets put wait while more waits there than raftwal's maxWaiting. What raft has
// under way (maxUncommittedBytes on a leader, MaxInflightBytes on a follower) is less, so the
// loop, which alone calls put, goes on while the disk hangs, and its heartbeats with it.
func (a *appends) put(m *raftpb.Message) {
	// Counted before the appender has it, which may be done with it before Append returns. No end
	// comes for what is refused, but that happens only while the member ends.
	a.disk.begin()
	err := a.appender.Append(raftwal.UpdateOf(m), func(err error) { a.appended(m, err) })
	if err != nil && !errors.Is(err, raftwal.ErrClosed) { // closed by shutdown, which the loop may be late to see
		a.life.Fail(err)
	}
}

// appended runs on the appender's goroutine, for one m after the other, when m is durable or
// the log has failed. After a failure the member ends: of a write whose sync has failed nobody
// can find out any more what the disk has of it, and a second sync that succeeds does not say.
func (a *appends) appended(m *raftpb.Message, err error) {
	a.disk.end() // also of a write that failed: the disk has answered
	if err != nil {
		// Nobody knows what is on the disk, so nothing may be answered any more.
		a.life.Fail(fmt.Errorf("write the log: %w", err))
		return
	}
	a.disk.written() // it had room, whatever was said of it before
	// Before the first answer leaves: a vote that somebody counts must not be forgotten by a
	// member that finds its log gone, and takes itself for a new one.
	if !a.started() {
		return
	}
	if raft.IsEmptySnap(m.GetSnapshot()) {
		a.respond(m.GetResponses())
		return
	}
	// The state goes with the snapshot: raft takes it for applied once this is answered, and the
	// next entry would be applied to the old state. Later answers wait for this one, as raft
	// demands, so the appender does; the applier waits for nothing of the appender's.
	done := make(chan struct{})
	a.jobs.Push(applyJob{restore: m.GetSnapshot(), done: done})
	// A crash in between leaves a log that begins at the snapshot, a store that is behind it, and
	// the file it came in: the next start restores that (reconcile).
	select {
	case <-done:
		a.respond(m.GetResponses())
	case <-a.life.Stopping():
	}
}

// started notes, before anybody hears of it, that the log has begun: from now on an empty one
// is a loss, and Start refuses it (ErrLost). It is written once in the life of a directory, and
// read here without the lock, as nobody else sets it.
func (a *appends) started() bool {
	return a.id.Started || a.note(func(id *memberdir.Identity) { id.Started = true })
}

// respond delivers what a local thread has to say: to peers what was waiting for the disk
// (votes, acknowledgements), to this member's raft that it has written or applied. None of it
// may leave before that: a vote or an acknowledgement that a crash takes back counts all the same. Nearly
// always all of it is for this member's raft, and nothing is copied then.
func (a *appends) respond(msgs []*raftpb.Message) {
	// Those to one member stay in the order in which raft has given them: it counts on that.
	var out []*raftpb.Message
	for i, m := range msgs {
		if m.GetTo() == a.ID() {
			continue
		}
		if out == nil {
			out = make([]*raftpb.Message, 0, len(msgs)-i)
		}
		out = append(out, m)
	}
	if out == nil {
		a.local.Push(msgs...)
		return
	}
	// The peers first: a quorum waits for them to be under way, and the loop may be busy.
	a.links.Send(out)
	for _, m := range msgs {
		if m.GetTo() == a.ID() {
			a.local.Push(m)
		}
	}
}
