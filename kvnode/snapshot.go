package kvnode

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/store/boltdb"
)

// sendSnapshot streams the newest checkpoint to a follower that the log does
// not reach back to. Raft named one at least as old; it learns the index that
// was really sent from the follower's answer, as in etcd.
func (n *Node) sendSnapshot(m *raftpb.Message) {
	n.workers.Go(func() {
		to := m.GetTo()
		state, err := n.openSnapshot(to)
		if err != nil {
			(*peers)(n).SnapshotSent(to, err)
			return
		}
		at := state.Checkpoint()
		m = proto.CloneOf(m)
		m.Snapshot = snapshotOf(at)
		if n.quiet.sent.loud(to) {
			n.log.Info("sends a snapshot", "to", n.called(to), "index", at.Index, "bytes", state.Size())
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

func (n *Node) snapPath(index uint64) string {
	return filepath.Join(n.snapDir(), fmt.Sprintf("%016x.snap", index))
}

// partSuffix is of files that are being received.
const partSuffix = ".part"

// receiveSnapshot makes the state durable under the name by which restore finds
// it, before raft hears of the snapshot. Raft offers one that failed again at its next
// heartbeat; one that found no room would take at once what the log waits for.
func (n *Node) receiveSnapshot(m *raftpb.Message, state io.Reader) error {
	if ago := time.Since(n.noRoomSince); ago < maxCheckpointPause {
		return fmt.Errorf("no room for a snapshot %v ago, the next is taken %v after that", ago.Round(time.Millisecond), maxCheckpointPause)
	}
	err := n.saveSnapshot(m, state)
	if isNoSpace(err) {
		n.noRoomSince = time.Now()
	}
	return err
}

func (n *Node) saveSnapshot(m *raftpb.Message, state io.Reader) error {
	want := m.GetSnapshot().GetMetadata()
	path := n.snapPath(want.GetIndex())
	part, err := os.CreateTemp(n.snapDir(), "*"+partSuffix) // a number takes the place of the star
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part.Name()) }() // gone if it was renamed
	_, err = io.Copy(part, state)
	if err = errors.Join(err, part.Sync(), part.Close()); err != nil {
		return fmt.Errorf("receive the snapshot of index %d: %w", want.GetIndex(), err)
	}
	got, err := boltdb.ReadCheckpoint(part.Name())
	if err != nil {
		return fmt.Errorf("snapshot of index %d: %w", want.GetIndex(), err)
	}
	if got.Index != want.GetIndex() || got.Term != want.GetTerm() || !proto.Equal(got.ConfState, want.GetConfState()) {
		return fmt.Errorf("snapshot of index %d, term %d holds a state of index %d, term %d", want.GetIndex(), want.GetTerm(), got.Index, got.Term)
	}
	// A file of that name is as good, and may be on its way into the store.
	if err := os.Link(part.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(n.snapDir())
}

// restore replaces the state by the snapshot that the log now begins with. It
// runs on the applier's goroutine.
func (n *Node) restore(snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	if index <= n.store.Applied() {
		return nil
	}
	before := n.store.Alarms()
	if err := n.store.Restore(n.snapPath(index)); err != nil {
		return fmt.Errorf("restore the snapshot of index %d: %w", index, err)
	}
	n.sayAlarms(before)
	n.log.Info("restored a snapshot", "index", index, "revision", n.store.Revision())
	n.dropSnapshots(index)
	n.lease.Applied(n.store.Applied())
	n.connectPeers()
	return nil
}

// dropSnapshots removes files that nobody will restore: of index or older, where
// the store is durable at index, and what was interrupted. It leaves what is not
// this program's alone.
func (n *Node) dropSnapshots(index uint64) {
	entries, err := os.ReadDir(n.snapDir())
	if err != nil {
		return // only room is lost
	}
	for _, e := range entries {
		path := filepath.Join(n.snapDir(), e.Name())
		snap, isSnap := strings.CutSuffix(e.Name(), ".snap")
		if i, err := strconv.ParseUint(snap, 16, 64); isSnap && err == nil && i <= index && path == n.snapPath(i) {
			_ = os.Remove(path)
		}
		part, isPart := strings.CutSuffix(e.Name(), partSuffix)
		if _, err := strconv.ParseUint(part, 10, 64); isPart && err == nil && !n.isReceiving() {
			_ = os.Remove(path)
		}
	}
}

// reportSnapshot tells raft what became of a snapshot: it sends nothing else to
// that follower before.
func (n *Node) reportSnapshot(to uint64, err error) {
	status := raft.SnapshotFinish
	if err != nil {
		status = raft.SnapshotFailure
		if n.quiet.undelivered.loud(to) {
			n.log.Warn("snapshot was not delivered", "to", n.called(to), "error", err)
		}
	}
	n.calls.put(func() { n.loop.raw.ReportSnapshot(to, status) })
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
