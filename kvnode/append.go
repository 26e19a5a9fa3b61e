package kvnode

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/memberdir"
	"github.com/leaderlease/go/raftwal"
)

// append hands m to the appender. Its answers are delivered when it is durable,
// in the order of the calls: an answer says that everything before it is durable, too, and
// raft counts it as a vote for an entry, or as one in an election.
func (n *Node) append(m *raftpb.Message) {
	n.disk.begin()
	err := n.appender.Append(raftwal.UpdateOf(m), func(err error) { n.appended(m, err) })
	if err != nil && !errors.Is(err, raftwal.ErrClosed) {
		n.fail(err)
	}
}

// appended runs on the appender's goroutine, when m is durable or the log has failed. After
// a failure the member ends: of a write whose sync has failed nobody can find out any more
// what the disk has of it, and a second sync that succeeds does not say.
func (n *Node) appended(m *raftpb.Message, err error) {
	n.disk.end()
	if err != nil {
		// Nobody knows what is on the disk, so nothing may be answered any more.
		n.fail(fmt.Errorf("write the log: %w", err))
		return
	}
	n.disk.written()
	if !n.started() {
		return
	}
	if raft.IsEmptySnap(m.GetSnapshot()) {
		n.respond(m.GetResponses())
		return
	}
	// The state goes with the snapshot. Later answers wait for this one, as raft
	// demands, so the appender does.
	done := make(chan struct{})
	n.applies.put(applyJob{restore: m.GetSnapshot(), done: done})
	select {
	case <-done:
		n.respond(m.GetResponses())
	case <-n.stopping:
	}
}

// started notes, before anybody hears of it, that the log has begun: from now
// on an empty one is a loss.
func (n *Node) started() bool {
	return n.id.Started || n.note(func(id *memberdir.Identity) { id.Started = true })
}

// respond delivers what a local thread has to say: to peers what was waiting for the disk
// (votes, acknowledgements), to this member's raft that it has written or applied. Nearly
// always all of it is for this member's raft, and nothing is copied then.
func (n *Node) respond(msgs []*raftpb.Message) {
	var out []*raftpb.Message
	for i, m := range msgs {
		if m.GetTo() == n.ID() {
			continue
		}
		if out == nil {
			out = make([]*raftpb.Message, 0, len(msgs)-i)
		}
		out = append(out, m)
	}
	if out == nil {
		n.local.put(msgs...)
		return
	}
	n.links.Send(out)
	for _, m := range msgs {
		if m.GetTo() == n.ID() {
			n.local.put(m)
		}
	}
}
