package leaderlease

import (
	"fmt"
	"time"

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
