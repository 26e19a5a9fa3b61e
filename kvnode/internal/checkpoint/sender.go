package checkpoint

import (
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// SenderConfig is what a Sender uses. Every field is required.
type SenderConfig struct {
	Checkpointer *Checkpointer
	// SendSnapshot sends m with the state, closes the state, and calls Report in the end.
	SendSnapshot func(m *raftpb.Message, state store.Snapshot)
	PeerName     func(id uint64) string // for log lines
	Lifecycle    *lifecycle.Lifecycle
	Logger       *slog.Logger
}

// Sender sends snapshots to followers that need entries from before the start of the log.
type Sender struct {
	cfg            SenderConfig
	sent, failures lifecycle.LogLimit
}

// NewSender returns a Sender.
func NewSender(cfg SenderConfig) *Sender { return &Sender{cfg: cfg} }

// Send sends the newest checkpoint instead of the snapshot that raft names in m, which may be older. As in etcd, raft
// learns the index of the checkpoint from the follower's answer. Until that or Report, raft sends no entries to the
// follower. The raft loop calls Send, which does not block.
func (s *Sender) Send(m *raftpb.Message) {
	c, to := s.cfg.Checkpointer, m.GetTo()
	c.slow.add(to, c.cfg.Log.Stats().Bytes)
	s.cfg.Lifecycle.Go(func() {
		state, err := s.openFor(to)
		if err != nil {
			s.Report(to, err)
			return
		}
		at := state.Checkpoint()
		m = proto.CloneOf(m)
		m.Snapshot = at.Snapshot()
		if s.sent.Allow(to) {
			s.cfg.Logger.Info("sends a snapshot", "to", s.cfg.PeerName(to), "index", at.Index, "bytes", state.Size())
		}
		s.cfg.SendSnapshot(m, state)
	})
}

// openFor opens a checkpoint whose configuration contains the member: raft refuses any other.
func (s *Sender) openFor(id uint64) (store.Snapshot, error) {
	c := s.cfg.Checkpointer
	if !contains(c.cfg.Store.Durable().ConfState, id) {
		if err := c.Make(); err != nil {
			return nil, err
		}
	}
	return c.cfg.Store.OpenSnapshot()
}

func contains(conf *raftpb.ConfState, id uint64) bool {
	return slices.Contains(slices.Concat(conf.GetVoters(), conf.GetVotersOutgoing(), conf.GetLearners(), conf.GetLearnersNext()), id)
}

// Report tells raft that the snapshot for a follower was delivered, or that it failed with err.
func (s *Sender) Report(to uint64, err error) {
	status := raft.SnapshotFinish
	if err != nil {
		status = raft.SnapshotFailure
		if s.failures.Allow(to) {
			s.cfg.Logger.Warn("snapshot was not delivered", "to", s.cfg.PeerName(to), "error", err)
		}
	}
	s.cfg.Checkpointer.cfg.Loop.Push(func(r Raft) { r.ReportSnapshot(to, status) })
}
