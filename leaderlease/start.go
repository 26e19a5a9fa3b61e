package leaderlease

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// start describes this node's past, as Storage and PromiseStore have it.
type start struct {
	hard      *raftpb.HardState
	conf      *raftpb.ConfState
	commit    uint64
	committed commitHint // the entry at commit
	last      uint64
	lastTerm  uint64
	restarted bool
	// saved is the longest promise in the PromiseStore, or MaxPromise without one. hold is the length of the
	// restart hold.
	saved, hold time.Duration
}

// readStart decides whether this is a restart, and the length of its hold (V6). A node that has ever
// granted a promise has a term in its storage: see docs/adr/0002 for the one case that raft alone does
// not cover.
func readStart(cfg *Config) (start, error) {
	hard, conf, err := cfg.Raft.Storage.InitialState()
	if err != nil {
		return start{}, fmt.Errorf("leaderlease: read initial state: %w", err)
	}
	if err := checkCommit(cfg.Raft.Storage, hard.GetCommit()); err != nil {
		return start{}, err
	}
	first, err := cfg.Raft.Storage.FirstIndex()
	if err != nil {
		return start{}, fmt.Errorf("leaderlease: read first index: %w", err)
	}
	last, err := cfg.Raft.Storage.LastIndex()
	if err != nil {
		return start{}, fmt.Errorf("leaderlease: read last index: %w", err)
	}
	lastTerm, err := cfg.Raft.Storage.Term(last)
	if err != nil {
		return start{}, fmt.Errorf("leaderlease: read the term of the last index %d: %w", last, err)
	}
	s := start{
		hard: hard, conf: conf, lastTerm: lastTerm,
		// Entries before the first index are in a snapshot, hence committed.
		commit: max(hard.GetCommit(), first-1),
		last:   last,
		// A snapshot alone may bootstrap a new member. A term or an entry is of an earlier process.
		restarted: hard.GetTerm() > 0 || last >= first,
	}
	// Raft reports the error of a commit index that is not in the log.
	if term, err := cfg.Raft.Storage.Term(s.commit); err == nil {
		s.committed = commitHint{s.commit, term}
	}
	err = s.remember(cfg)
	return s, err
}

// remember finds the longest promise that earlier processes may have made. It saves the duration that
// this process begins with, even if it equals the loaded one: a file that was read need not be durable.
func (s *start) remember(cfg *Config) error {
	s.saved = cfg.MaxPromise
	if cfg.Promises != nil {
		loaded, err := cfg.Promises.LoadLongestPromise()
		if err != nil {
			return fmt.Errorf("leaderlease: load the longest promise: %w", err)
		}
		if loaded > 0 || !s.restarted { // else earlier processes have saved nothing
			s.saved = max(loaded, cfg.Duration)
		}
		if err := cfg.Promises.SaveLongestPromise(s.saved); err != nil {
			return fmt.Errorf("leaderlease: save the longest promise %v: %w", s.saved, err)
		}
	}
	if s.restarted {
		s.hold = s.saved
	}
	return nil
}

// floor is the duration to which the saved promise may fall when the restart hold has ended. In a
// process without a hold it does not fall: New may have read Storage before the log was in it.
func (s *start) floor(cfg *Config) time.Duration {
	if !s.restarted {
		return s.saved
	}
	return cfg.Duration
}

// NewRawNode returns raft's RawNode for raftConfig, and its Lease. Raft and the Lease get the same
// configuration, and read Storage at the same moment. Storage must be open and recovered before the
// call.
//
// Both get RecoverCommit(raftConfig.Storage): it raises raft's commit index to the newest configuration
// change that the log proves to be committed, so that no majority of an outdated configuration can
// elect the node. The caller's raftConfig does not change.
//
// leaseConfig.Raft must be nil. NewRawNode returns an error where raft.NewRawNode panics because
// Applied is above the commit index. On other values that raft refuses and Config.Validate does not
// check, it panics as raft does.
func NewRawNode(raftConfig *raft.Config, leaseConfig Config) (*raft.RawNode, *Lease, error) {
	own, l, err := newPair("NewRawNode", raftConfig, leaseConfig)
	if err != nil {
		return nil, nil, err
	}
	node, err := raft.NewRawNode(own)
	if err != nil {
		return nil, nil, fmt.Errorf("leaderlease: make the RawNode: %w", err)
	}
	return node, l, nil
}

// RestartNode returns raft.RestartNode(raftConfig) behind its Lease, as Wrap returns it, and the Lease.
// The two configurations are as in NewRawNode.
func RestartNode(raftConfig *raft.Config, leaseConfig Config) (raft.Node, *Lease, error) {
	own, l, err := newPair("RestartNode", raftConfig, leaseConfig)
	if err != nil {
		return nil, nil, err
	}
	return wrap(raft.RestartNode(own), l), l, nil
}

// StartNode returns raft.StartNode(raftConfig, peers) behind its Lease, as Wrap returns it, and the
// Lease: the node is a member of a new group, and its log begins with peers. Without peers, or if the log
// is not empty, StartNode returns an error. The two configurations are as in NewRawNode.
func StartNode(raftConfig *raft.Config, leaseConfig Config, peers []raft.Peer) (raft.Node, *Lease, error) {
	if len(peers) == 0 {
		return nil, nil, errors.New("leaderlease: StartNode: no peers (a member of an existing group uses RestartNode)")
	}
	own, l, err := newPair("StartNode", raftConfig, leaseConfig)
	if err != nil {
		return nil, nil, err
	}
	if l.lastAtStart > 0 || l.hardTermAtStart > 0 {
		return nil, nil, fmt.Errorf("leaderlease: StartNode: the log in Storage is not empty: it ends at index %d, and its HardState has term %d (use RestartNode; "+
			"if a first write was interrupted, so that there are entries and no HardState, delete the log and call StartNode)", l.lastAtStart, l.hardTermAtStart)
	}
	return wrap(raft.StartNode(own, peers), l), l, nil
}

// newPair returns raft's configuration, with RecoverCommit, and the Lease of it.
func newPair(caller string, raftConfig *raft.Config, leaseConfig Config) (*raft.Config, *Lease, error) {
	if leaseConfig.Raft != nil {
		return nil, nil, fmt.Errorf("leaderlease: Config.Raft is set, but %s takes the raft.Config as an argument: leave Config.Raft nil", caller)
	}
	if raftConfig != nil {
		own := *raftConfig
		if own.Storage != nil {
			own.Storage = RecoverCommit(own.Storage)
		}
		leaseConfig.Raft = &own
	}
	l, err := New(leaseConfig)
	if err != nil {
		return nil, nil, err
	}
	if applied, commit := raftConfig.Applied, l.commit.Load(); applied > commit {
		return nil, nil, fmt.Errorf("leaderlease: raft.Config.Applied %d is above the commit index %d of Storage: lower Applied to it "+
			"(if the state machine is ahead of the log, set Config.ConfIndex)", applied, commit)
	}
	return leaseConfig.Raft, l, nil
}
