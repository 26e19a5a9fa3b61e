package leaderlease

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// start is what storage says about this node's past.
type start struct {
	hard      *raftpb.HardState
	conf      *raftpb.ConfState
	commit    uint64
	committed commitHint // the entry at commit
	last      uint64
	lastTerm  uint64
	restarted bool
	// saved is the longest promise that a restart would remember, hold how long this
	// one binds the node.
	saved, hold time.Duration
}

// readStart decides whether this is a restart and how long it holds (V6). A
// node that ever granted a promise has a term in its storage: see
// docs/adr/0002 for the one case where raft alone would not see to that.
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
		// Everything before the first index is in a snapshot, hence committed.
		commit: max(hard.GetCommit(), first-1),
		last:   last,
		// A snapshot alone may be how a new member is bootstrapped; a term or
		// an entry is not.
		restarted: hard.GetTerm() > 0 || last >= first,
	}
	// Raft says what is wrong with a commit index that is not in the log.
	if term, err := cfg.Raft.Storage.Term(s.commit); err == nil {
		s.committed = commitHint{s.commit, term}
	}
	err = s.remember(cfg)
	return s, err
}

// remember finds the longest promise that earlier processes may have made, and makes
// durable what this one begins with before it makes any, also if it was loaded: what a
// process has read may be there in memory only.
func (s *start) remember(cfg *Config) error {
	s.saved = cfg.MaxPromise
	if cfg.Promises != nil {
		loaded, err := cfg.Promises.LoadMaxPromise()
		if err != nil {
			return fmt.Errorf("leaderlease: load the longest promise: %w", err)
		}
		if loaded > 0 || !s.restarted { // else earlier processes have saved nothing
			s.saved = max(loaded, cfg.Duration)
		}
		if err := cfg.Promises.SaveMaxPromise(s.saved); err != nil {
			return fmt.Errorf("leaderlease: save the longest promise %v: %w", s.saved, err)
		}
	}
	if s.restarted {
		s.hold = s.saved
	}
	return nil
}

// floor is what the saved promise may fall to. It falls when the restart hold has ended, so it
// does not fall in a process without one: there New may have read Storage too early.
func (s *start) floor(cfg *Config) time.Duration {
	if !s.restarted {
		return s.saved
	}
	return cfg.Duration
}

// NewRawNode returns raft's RawNode for raftConfig, and its Lease. It is raft.NewRawNode and
// New in one call, which leaves no room for two mistakes: raft and the Lease get the same
// configuration, and read Storage at the same moment. Open Storage and let it recover before
// the call.
//
// Both get RecoverCommit(raftConfig.Storage): the commit index that raft starts with is
// raised to the newest configuration change that the log proves to be committed, so that the
// node cannot be elected by a majority of a configuration that is out of use. The
// raftConfig of the caller is not changed.
//
// leaseConfig.Raft must be nil, since raftConfig takes its place. NewRawNode returns an error
// where raft.NewRawNode panics because Applied is above the commit index. On other values
// that raft refuses and Config.Validate does not check, it panics as raft does.
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

// RestartNode returns raft.RestartNode(raftConfig) behind its Lease, as Wrap returns it, and
// the Lease. What NewRawNode says of the two configurations is true of RestartNode.
func RestartNode(raftConfig *raft.Config, leaseConfig Config) (raft.Node, *Lease, error) {
	own, l, err := newPair("RestartNode", raftConfig, leaseConfig)
	if err != nil {
		return nil, nil, err
	}
	return wrap(raft.RestartNode(own), l), l, nil
}

// StartNode returns raft.StartNode(raftConfig, peers) behind its Lease, as Wrap returns it, and
// the Lease: the node is the member of a new group, whose log begins with peers. Where raft
// panics without peers, and goes on without them if the log is not empty, StartNode returns
// an error. What NewRawNode says of the two configurations is true of StartNode.
func StartNode(raftConfig *raft.Config, leaseConfig Config, peers []raft.Peer) (raft.Node, *Lease, error) {
	if len(peers) == 0 {
		return nil, nil, errors.New("leaderlease: StartNode needs the peers of the new group: use RestartNode without")
	}
	own, l, err := newPair("StartNode", raftConfig, leaseConfig)
	if err != nil {
		return nil, nil, err
	}
	if l.lastAtStart > 0 || l.hardTermAtStart > 0 {
		return nil, nil, fmt.Errorf("leaderlease: StartNode begins an empty log, and the one in Storage ends at index %d, with a HardState of term %d: use RestartNode "+
			"(a process that was killed in its first write leaves entries and no HardState: delete the log, and call StartNode)", l.lastAtStart, l.hardTermAtStart)
	}
	return wrap(raft.StartNode(own, peers), l), l, nil
}

// newPair returns the configuration that raft is to run with, and the Lease of the same.
func newPair(caller string, raftConfig *raft.Config, leaseConfig Config) (*raft.Config, *Lease, error) {
	if leaseConfig.Raft != nil {
		return nil, nil, fmt.Errorf("leaderlease: Config.Raft is set, and %s has a raft.Config of its own: leave Config.Raft nil", caller)
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
		return nil, nil, fmt.Errorf("leaderlease: raft.Config.Applied %d is above the commit index %d of Storage: give raft the lower of the two "+
			"(Config.ConfIndex is for a state machine that is ahead of the log)", applied, commit)
	}
	return leaseConfig.Raft, l, nil
}
