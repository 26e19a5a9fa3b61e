package leaderlease

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// RecoverCommit returns s with another InitialState: its commit index is raised to the
// newest configuration change that the log of s proves to be committed, and to the snapshot that
// the log begins after. All other methods
// are those of s, and s is not written.
//
// # Why
//
// Raft counts votes by the configuration that a node has applied. The commit index that
// says what may be applied need not survive a crash: MustSync does not ask for it, and a
// process may be killed between the entries and the HardState of one Ready. A node whose
// log holds two changes then starts with the configuration before both. The group may use
// the configuration after both. The majorities of these two need not have a member in
// common, so the node can be elected beside the leader, whose lease is valid.
//
// # What the log proves
//
// A leader proposes a configuration change only when it has applied every change before it
// (raft's pendingConfIndex; what it refuses becomes a normal entry; it leaves a joint
// configuration by itself only once it has applied it). So a log that holds a change holds
// proof that all changes before it are committed, whatever they change: voters, learners, or
// the way out of a joint configuration. RecoverCommit raises the commit index to the change
// before the last one. The node is then at most one configuration behind the newest change in its
// log, and the majorities of two neighboring configurations have a member in common.
//
// This holds if no member of the group has run with DisableConfChangeValidation.
//
// # Changes that no leader has proposed
//
// RawNode.Bootstrap, StartNode and some tools that restore a group append changes without a
// leader. They prove nothing: with one of two changes of Bootstrap, a node would elect
// itself. Each leader begins its term with a normal entry. So a change is proof only if the
// log holds a normal entry of the same term before it. If the log begins after a snapshot,
// the entry at the snapshot's index stands for such an entry: that is right if the snapshot
// was made of applied state, or is the hand-made snapshot that all members of a new group
// begin with, since the first entry after that one is a leader's.
//
// A tool that appends changes of its own, such as one that forces a new cluster out of one
// member, must write a HardState with them whose Commit covers all of them, and its output
// must not be used if the tool was killed before it ended. Otherwise RecoverCommit may take
// such changes for a leader's.
//
// A log that holds only a part of what Bootstrap appends, and an empty HardState, belongs to
// a process that was killed in its first write. Nothing is recovered from it. That node has
// neither voted nor granted anything yet, so it can start anew: delete the log, and call
// StartNode again.
//
// # How to use it
//
// NewRawNode, StartNode and RestartNode of this package use it. With raft's own
// constructors, set raft.Config.Storage to RecoverCommit(storage) before raft and New get
// that Config: New refuses a Storage of which it knows that the commit index is too low.
// RecoverCommit reads the log whenever InitialState is called, from the commit index on and
// at most 1 MiB at once. InitialState fails if the log cannot be read.
func RecoverCommit(s raft.Storage) raft.Storage { return recovered{s} }

// recovered is the Storage that RecoverCommit returns.
type recovered struct{ raft.Storage }

// InitialState returns the recovered commit index, with the rest as it is stored.
func (r recovered) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hard, conf, err := r.Storage.InitialState()
	if err != nil {
		return hard, conf, err
	}
	commit, err := provenCommit(r.Storage, hard.GetCommit())
	if err != nil {
		return nil, nil, err
	}
	if !raft.IsEmptyHardState(hard) {
		// A process that was killed between a snapshot and its HardState leaves a commit index
		// before the log, with which raft does not start.
		first, err := r.FirstIndex()
		if err != nil {
			return nil, nil, fmt.Errorf("leaderlease: read first index: %w", err)
		}
		commit = max(commit, first-1)
	}
	if commit > hard.GetCommit() {
		hard = &raftpb.HardState{Term: new(hard.GetTerm()), Vote: new(hard.GetVote()), Commit: new(commit)}
	}
	return hard, conf, nil
}

// checkCommit returns an error if raft must not start with the commit index stored in s.
func checkCommit(s raft.Storage, stored uint64) error {
	proven, err := provenCommit(s, stored)
	if err != nil || proven == stored {
		return err
	}
	return &MisuseError{Rule: fmt.Sprintf("the HardState in Storage has commit index %d, and the log proves that the configuration change at %d is committed: "+
		"a node that starts so may be elected beside the leader; use NewRawNode, StartNode or RestartNode of this package, "+
		"or set raft.Config.Storage to RecoverCommit(Storage) for raft and for New", stored, proven)}
}

// provenCommit returns the index of the newest configuration change of which the log in s
// proves that it is committed, or stored if that is not below it. stored is the commit index
// of the HardState.
func provenCommit(s raft.Storage, stored uint64) (uint64, error) {
	first, err := s.FirstIndex()
	if err != nil {
		return 0, fmt.Errorf("leaderlease: read first index: %w", err)
	}
	last, err := s.LastIndex()
	if err != nil {
		return 0, fmt.Errorf("leaderlease: read last index: %w", err)
	}
	// What is before the first index is in a snapshot, hence committed.
	known := max(stored, first-1)
	if known >= last {
		return stored, nil
	}
	led, err := leaderTerm(s, first, known)
	if err != nil {
		return 0, err
	}
	// change is the newest change so far, proven the newest that a later one proves.
	var change, proven uint64
	err = eachEntry(s, known+1, last+1, func(e *raftpb.Entry) bool {
		if !changesConf(e) {
			led = e.GetTerm()
			return true
		}
		if e.GetTerm() == led {
			proven = change
		}
		change = e.GetIndex()
		return true
	})
	return max(stored, proven), err
}

// leaderTerm returns the term of the entry at known, if a leader began that term in the log
// up to there, or in what a snapshot has taken the place of. Otherwise it returns 0: the
// entries up to known are all Bootstrap's.
func leaderTerm(s raft.Storage, first, known uint64) (uint64, error) {
	led := first > 1
	err := eachEntry(s, first, known+1, func(e *raftpb.Entry) bool {
		led = led || !changesConf(e)
		return !led
	})
	if err != nil || !led {
		return 0, err
	}
	term, err := s.Term(known)
	if err != nil {
		return 0, fmt.Errorf("leaderlease: read the term of the log's entry %d: %w", known, err)
	}
	return term, nil
}

// recoverPage is how many bytes of the log are read together.
const recoverPage = 1 << 20

// eachEntry calls visit with the entries of s in [lo, hi), until it returns false.
func eachEntry(s raft.Storage, lo, hi uint64, visit func(*raftpb.Entry) bool) error {
	for lo < hi {
		entries, err := s.Entries(lo, hi, recoverPage)
		if err != nil {
			return fmt.Errorf("leaderlease: read the log's entries from %d up to %d: %w", lo, hi-1, err)
		}
		if len(entries) == 0 {
			return fmt.Errorf("leaderlease: Storage.Entries(%d, %d) returns none and no error: it must return one entry at least", lo, hi)
		}
		for _, e := range entries {
			if !visit(e) {
				return nil
			}
		}
		lo += uint64(len(entries))
	}
	return nil
}

// changesConf reports whether e is a configuration change. One that leaves a joint
// configuration may have no data.
func changesConf(e *raftpb.Entry) bool {
	return e.GetType() == raftpb.EntryConfChange || e.GetType() == raftpb.EntryConfChangeV2
}
