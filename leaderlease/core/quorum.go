package core

import (
	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"
)

// quorumEnd returns the newest instant that a quorum of cfg has promised to
// reach, by raft's own rule for commit indexes (L3). In a joint configuration
// both halves must have reached it.
func quorumEnd(cfg quorum.JointConfig, promised quorum.AckedIndexer) Instant {
	// An empty configuration "commits" everything; a lease must not.
	if len(cfg[0]) == 0 {
		return 0
	}
	end := uint64(cfg.CommittedIndex(promised))
	if end > uint64(Forever) {
		return 0
	}
	return Instant(end)
}

// Voters builds the voting configuration out of raft's ConfState. Learners,
// also those that become learners when the joint configuration is left, count
// only where ConfState lists them as voters.
func Voters(cs *raftpb.ConfState) quorum.JointConfig {
	return quorum.JointConfig{majority(cs.GetVoters()), majority(cs.GetVotersOutgoing())}
}

func majority(ids []uint64) quorum.MajorityConfig {
	if len(ids) == 0 {
		return nil
	}
	m := make(quorum.MajorityConfig, len(ids))
	for _, id := range ids {
		m[id] = struct{}{}
	}
	return m
}

// isVoter reports whether id votes in either half of cfg.
func isVoter(cfg quorum.JointConfig, id uint64) bool {
	_, in := cfg[0][id]
	_, out := cfg[1][id]
	return in || out
}

// AloneQuorum reports whether id needs nobody else to win an election in cfg
// (V5).
func AloneQuorum(cfg quorum.JointConfig, id uint64) bool {
	return alone(cfg[0], id) && (len(cfg[1]) == 0 || alone(cfg[1], id))
}

func alone(half quorum.MajorityConfig, id uint64) bool {
	_, in := half[id]
	return in && len(half) == 1
}
