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
	last      uint64
	lastTerm  uint64
	restarted bool
	hold      time.Duration
}

// readStart decides whether this is a restart and how long it holds (V6). A
// node that ever granted a promise has a term in its storage: see
// docs/adr/0002 for the one case where raft alone would not see to that.
func readStart(cfg *Config) (start, error) {
	hard, conf, err := cfg.Raft.Storage.InitialState()
	if err != nil {
		return start{}, fmt.Errorf("leaderlease: read initial state: %w", err)
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
	s.hold, err = s.holdFor(cfg)
	return s, err
}

// holdFor returns the restart hold and saves the longest promise that this run
// may make before it makes any, also if it was loaded: what a process has read may be
// there in memory only.
func (s *start) holdFor(cfg *Config) (time.Duration, error) {
	longest := cfg.MaxPromise
	if cfg.Promises != nil {
		saved, err := cfg.Promises.LoadMaxPromise()
		if err != nil {
			return 0, fmt.Errorf("leaderlease: load the longest promise: %w", err)
		}
		longest = max(longest, saved)
		if err := cfg.Promises.SaveMaxPromise(longest); err != nil {
			return 0, fmt.Errorf("leaderlease: save the longest promise %v: %w", longest, err)
		}
	}
	if !s.restarted {
		return 0, nil
	}
	return longest, nil
}
