package kvnode

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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
	n.hasRoom()
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

// hasRoom notes that something was written.
func (n *Node) hasRoom() {
	if n.disk.full.Load() {
		n.disk.full.Store(false)
		n.log.Info("disk has room again")
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

// diskWatch notices a disk that does not answer, or is full. The writer counts begun and
// ended; the loop looks at each tick, since a goroutine stuck in a write cannot say so.
type diskWatch struct {
	begun, ended atomic.Uint64
	full         atomic.Bool // the last write found no room
	stuck        atomic.Bool // stalled, for others than the loop

	// The loop only.
	stalled bool
	seen    uint64 // ended, when it last moved
	idle    int    // ticks since then with something under way
}

func (d *diskWatch) begin() { d.begun.Add(1) }
func (d *diskWatch) end()   { d.ended.Add(1) }

// check tells the lease when nothing has become durable for an election timeout
// although something is under way. A leader whose disk hangs keeps its followers' promises
// alive by heartbeats, which need no disk, and would keep everybody from writing for as long
// as the disk hangs. Sooner than an election timeout: a slow sync costs the lease. Later:
// nobody writes for longer than a dead leader would cost.
func (d *diskWatch) check(n *Node) {
	begun, ended := d.begun.Load(), d.ended.Load()
	if ended != d.seen || begun == ended {
		d.seen, d.idle = ended, 0
	} else {
		d.idle++
	}
	if stalled := d.idle >= n.cfg.electionTicks(); stalled != d.stalled {
		d.stalled = stalled
		d.stuck.Store(stalled)
		n.lease.SetDiskStalled(stalled)
		n.log.Warn("disk", "stalled", stalled)
	}
	if d.stalled || d.full.Load() {
		n.transfers.stepAside()
	}
}

// fullDiskPause is between two tries to write to a full disk. Shorter: the tries keep the
// disk busy on which somebody is making room. Longer: writes go on later than they could.
const fullDiskPause = 200 * time.Millisecond

// retryFullDisk keeps the appender trying while the disk is full: nothing of
// the batch is in the log, so nothing is lost, and reads go on.
func (n *Node) retryFullDisk(err error) bool {
	if !n.disk.full.Swap(true) {
		n.log.Error("disk is full, writes are refused", append(n.roomFor(n.segmentSize()), "error", err)...)
	}
	n.askCheckpoint() // it may free segments
	select {
	case <-n.stopping:
		return false
	case <-time.After(fullDiskPause):
		return true
	}
}
