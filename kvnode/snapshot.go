package kvnode

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/store"
)

// sendSnapshot streams the newest checkpoint to a follower that the log does
// not reach back to. Raft named one at least as old; it learns the index that
// was really sent from the follower's answer, as in etcd.
func (n *Node) sendSnapshot(m *raftpb.Message) {
	n.workers.Go(func() {
		to := m.GetTo()
		state, err := n.openSnapshot(to)
		if err != nil {
			n.reportSnapshot(to, err)
			return
		}
		at := state.Checkpoint()
		m = proto.CloneOf(m)
		m.Snapshot = snapshotOf(at)
		if n.quiet.sent.loud(to) {
			n.log.Info("sends a snapshot", "to", n.book.called(to), "index", at.Index, "bytes", state.Size())
		}
		n.links.SendSnapshot(m, state)
	})
}

// openSnapshot opens a checkpoint whose configuration has member to: raft
// refuses any other.
func (n *Node) openSnapshot(to uint64) (store.Snapshot, error) {
	if !inConf(n.store.Durable().ConfState, to) {
		if err := n.checkpoint(); err != nil {
			return nil, err
		}
	}
	return n.store.OpenSnapshot()
}

func inConf(conf *raftpb.ConfState, id uint64) bool {
	for _, ids := range [][]uint64{conf.GetVoters(), conf.GetVotersOutgoing(), conf.GetLearners(), conf.GetLearnersNext()} {
		if slices.Contains(ids, id) {
			return true
		}
	}
	return false
}

// restore replaces the state by the snapshot that the log now begins with. It
// runs on the applier's goroutine.
func (n *Node) restore(snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	if index <= n.store.Applied() {
		return nil
	}
	before := n.store.Alarms()
	if err := n.store.Restore(n.received.path(index)); err != nil {
		return fmt.Errorf("restore the snapshot of index %d: %w", index, err)
	}
	n.sayAlarms(before)
	n.log.Info("restored a snapshot", "index", index, "revision", n.store.Revision())
	n.received.drop(index)
	n.lease.Applied(n.store.Applied())
	n.connectPeers()
	return nil
}

// reportSnapshot tells raft what became of a snapshot: it sends nothing else to
// that follower before.
func (n *Node) reportSnapshot(to uint64, err error) {
	status := raft.SnapshotFinish
	if err != nil {
		status = raft.SnapshotFailure
		if n.quiet.undelivered.loud(to) {
			n.log.Warn("snapshot was not delivered", "to", n.book.called(to), "error", err)
		}
	}
	n.calls.put(func(l *raftLoop) { l.raw.ReportSnapshot(to, status) })
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
