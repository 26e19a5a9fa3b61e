package kvnode

import (
	"errors"
	"slices"
	"syscall"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// snapshots are sent to followers.
type snapshots struct {
	*parts
	checkpoints *checkpoints
}

// send streams the newest checkpoint to a follower that the log does
// not reach back to. Raft named one at least as old; it learns the index that
// was really sent from the follower's answer, as in etcd.
func (s *snapshots) send(m *raftpb.Message) {
	s.life.Go(func() {
		to := m.GetTo()
		state, err := s.open(to)
		if err != nil {
			s.report(to, err)
			return
		}
		at := state.Checkpoint()
		m = proto.CloneOf(m)
		m.Snapshot = at.Snapshot()
		if s.logLimits.sent.Allow(to) {
			s.log.Info("sends a snapshot", "to", s.book.called(to), "index", at.Index, "bytes", state.Size())
		}
		s.links.SendSnapshot(m, state)
	})
}

// open opens a checkpoint whose configuration has member to: raft
// refuses any other.
func (s *snapshots) open(to uint64) (store.Snapshot, error) {
	if !inConf(s.store.Durable().ConfState, to) {
		if err := s.checkpoints.take(); err != nil {
			return nil, err
		}
	}
	return s.store.OpenSnapshot()
}

func inConf(conf *raftpb.ConfState, id uint64) bool {
	for _, ids := range [][]uint64{conf.GetVoters(), conf.GetVotersOutgoing(), conf.GetLearners(), conf.GetLearnersNext()} {
		if slices.Contains(ids, id) {
			return true
		}
	}
	return false
}

// report tells raft what became of a snapshot: it sends nothing else to
// that follower before.
func (s *snapshots) report(to uint64, err error) {
	status := raft.SnapshotFinish
	if err != nil {
		status = raft.SnapshotFailure
		if s.logLimits.undelivered.Allow(to) {
			s.log.Warn("snapshot was not delivered", "to", s.book.called(to), "error", err)
		}
	}
	s.calls.Push(func(l *raftLoop) { l.raw.ReportSnapshot(to, status) })
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
