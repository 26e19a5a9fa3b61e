package leaderlease

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// RecoverCommit returns a Storage that reads from s and recovers a commit index that a crash has lost. It raises
// the commit index of InitialState to the newest configuration change that the log proves to be committed and,
// unless the HardState is empty, to the snapshot before the log. It commits no entry, and does not write to s.
//
// NewRawNode, StartNode and RestartNode of this package use it. With raft's own constructors, set
// raft.Config.Storage to RecoverCommit(storage) before raft and New get that Config. New refuses a Storage
// with too low a commit index. InitialState reads the start of the log, up to its first normal entry,
// and the log from the commit index on, at most 1 MiB at once. It fails if the log cannot be read.
//
// # Why
//
// Raft counts votes by the configuration that a node has applied. The commit index limits what a node may
// apply, and it need not survive a crash: MustSync does not ask for it, and a process may be killed between
// the entries and the HardState of one Ready. A node with two changes in its log then starts with the
// configuration before both, while the group may use the configuration after both. The majorities of these
// two need not have a member in common, so the node can be elected beside a leader with a valid lease.
//
// # What the log proves
//
// A leader proposes a configuration change only when it has applied every change before it (raft's
// pendingConfIndex; a refused change becomes a normal entry; raft leaves a joint configuration by itself
// only once it has applied it). So a change in the log proves that all changes before it are committed.
// RecoverCommit raises the commit index to the change before the last one. The node is then at most one
// configuration behind its log, and the majorities of two neighboring configurations have a member in
// common. This holds if no member of the group has run with DisableConfChangeValidation.
//
// # Changes that no leader has proposed
//
// RawNode.Bootstrap, StartNode and some tools that restore a group append changes without a leader. Such changes
// prove nothing: else a node with two changes of Bootstrap would take the first one for committed, be the only
// voter of that configuration, and elect itself. Each leader begins its term with a normal entry. So a change is
// proof only if the log holds a normal entry of the same term before it. If the log begins after a snapshot, the
// entry at the snapshot's index stands for such an entry. That is right if the snapshot was made of applied state.
// It is also right for a hand-made snapshot with which all members of a new group begin, since the first entry
// after it is a leader's.
//
// A tool that appends changes of its own, such as one that forces a new cluster out of one member, must also
// write a HardState with a Commit that covers them. Do not use its output if the tool was killed. Otherwise
// RecoverCommit may take such changes for a leader's.
//
// A log with a part of the entries of Bootstrap and an empty HardState belongs to a process that was killed
// in its first write. Nothing is recovered from it. That node has neither voted nor granted anything yet:
// delete the log, and call StartNode again.
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
		// A process that was killed between a snapshot and its HardState leaves a commit index before the
		// log. Raft does not start with that.
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
	return &MisuseError{Text: fmt.Sprintf("the HardState in Storage has commit index %d, and the log proves that the configuration change at %d is committed: "+
		"a node that starts so may be elected beside the leader; use NewRawNode, StartNode or RestartNode of this package, "+
		"or set raft.Config.Storage to RecoverCommit(Storage) for raft and for New", stored, proven)}
}

// provenCommit returns the newest configuration change that the log in s proves to be committed, or stored,
// the commit index of the HardState, if that is higher.
func provenCommit(s raft.Storage, stored uint64) (uint64, error) {
	first, err := s.FirstIndex()
	if err != nil {
		return 0, fmt.Errorf("leaderlease: read first index: %w", err)
	}
	last, err := s.LastIndex()
	if err != nil {
		return 0, fmt.Errorf("leaderlease: read last index: %w", err)
	}
	// Entries before the first index are in a snapshot, hence committed.
	known := max(stored, first-1)
	if known >= last {
		return stored, nil
	}
	led, err := leaderTerm(s, first, known)
	if err != nil {
		return 0, err
	}
	// change is the newest change so far. proven is the newest change that a later one proves.
	var change, proven uint64
	err = eachEntry(s, known+1, last+1, func(e *raftpb.Entry) bool {
		if !isChange(e) {
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

// leaderTerm returns the term of the entry at known, or 0 if all entries up to there are from Bootstrap. A
// normal entry, or a snapshot before the log, is the sign of a leader.
func leaderTerm(s raft.Storage, first, known uint64) (uint64, error) {
	led := first > 1
	err := eachEntry(s, first, known+1, func(e *raftpb.Entry) bool {
		led = led || !isChange(e)
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

// recoverPage is how many bytes of the log are read at once.
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
