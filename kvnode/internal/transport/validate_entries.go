package transport

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// checkEntries checks the entries of all types of messages.
func checkEntries(m *raftpb.Message, _, _ uint64) error {
	if n := len(m.GetEntries()); n > maxEntries {
		return invalid(m, "entries", "%d entries exceed the limit of %d", n, maxEntries)
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		return checkAppend(m)
	case raftpb.MsgProp:
		return checkProposal(m)
	case raftpb.MsgReadIndex, raftpb.MsgReadIndexResp:
		return checkRead(m)
	default:
		if n := len(m.GetEntries()); n > 0 {
			return invalid(m, "entries", "%d entries, want none", n)
		}
		return nil
	}
}

// checkAppend requires a part of a leader's log: indexes continue at Index, terms
// never decrease, and no term is above the leader's. Raft does not check that
// (raft.go, logSliceFromMsgApp). With gaps it appends at the wrong index or panics
// (log.go, maybeAppend and append; log_unstable.go, truncateAndAppend). Only index 0
// has term 0 (log.go, term).
func checkAppend(m *raftpb.Message) error {
	index, term := m.GetIndex(), m.GetLogTerm()
	if (index == 0) != (term == 0) {
		return invalid(m, "entries", "previous entry has index %d, term %d", index, term)
	}
	if term > m.GetTerm() {
		return invalid(m, "entries", "previous entry of term %d in an append of term %d", term, m.GetTerm())
	}
	for i, e := range m.GetEntries() {
		index++
		if e.GetIndex() != index {
			return invalid(m, "entries", "entry %d has index %d, want %d", i, e.GetIndex(), index)
		}
		if e.GetTerm() < max(term, 1) || e.GetTerm() > m.GetTerm() {
			return invalid(m, "entries", "entry %d has term %d, want %d to %d", i, e.GetTerm(), max(term, 1), m.GetTerm())
		}
		term = e.GetTerm()
		if err := checkEntry(e); err != nil {
			return invalid(m, "entries", "entry %d: %v", i, err)
		}
	}
	return nil
}

// checkProposal requires valid entries. A leader panics for a proposal without
// entries, and for configuration changes that do not decode (raft.go, stepLeader).
func checkProposal(m *raftpb.Message) error {
	if len(m.GetEntries()) == 0 {
		return invalid(m, "entries", "no entries")
	}
	for i, e := range m.GetEntries() {
		if err := checkEntry(e); err != nil {
			return invalid(m, "entries", "entry %d: %v", i, err)
		}
	}
	return nil
}

// checkRead requires one entry with a short context. Without an entry raft may panic
// (raft.go, responseToReadIndexReq). The context is short, because a leader keeps
// requests until it can answer them.
func checkRead(m *raftpb.Message) error {
	if n := len(m.GetEntries()); n != 1 {
		return invalid(m, "entries", "%d entries, want 1", n)
	}
	e := m.GetEntries()[0]
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) > maxReadContext {
		return invalid(m, "entries", "request of type %d, %d bytes, want at most %d", e.GetType(), len(e.GetData()), maxReadContext)
	}
	return nil
}

// checkEntry requires a normal entry or a valid configuration change.
func checkEntry(e *raftpb.Entry) error {
	switch e.GetType() {
	case raftpb.EntryNormal:
		return nil
	case raftpb.EntryConfChange:
		cc := &raftpb.ConfChange{}
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			return fmt.Errorf("conf change does not decode: %w", err)
		}
		return checkChange(cc.AsV2())
	case raftpb.EntryConfChangeV2:
		cc := &raftpb.ConfChangeV2{}
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			return fmt.Errorf("conf change does not decode: %w", err)
		}
		return checkChange(cc)
	default:
		return fmt.Errorf("entry of type %d is not known", e.GetType())
	}
}

// checkChange refuses changes for which raft panics in every configuration, when it
// applies them. The proposer must refuse changes that are invalid in the present
// configuration, such as the removal of the last voter. checkChange refuses
//
//   - unknown transitions and types of changes (confchange.go, EnterJoint of raftpb;
//     confchange.go, apply).
//   - transitions without changes. A leader accepts them as the end of a joint
//     configuration (raft.go, stepLeader) and applies them as its beginning
//     (raft.go, applyConfChange).
//   - the IDs of raft's storage threads (rawnode.go, Step).
func checkChange(cc *raftpb.ConfChangeV2) error {
	switch cc.GetTransition() {
	case raftpb.ConfChangeTransitionAuto:
	case raftpb.ConfChangeTransitionJointImplicit, raftpb.ConfChangeTransitionJointExplicit:
		if len(cc.GetChanges()) == 0 {
			return fmt.Errorf("conf change enters a joint configuration (%s) without changes", cc.GetTransition())
		}
	default:
		return fmt.Errorf("conf change with unknown transition %d", cc.GetTransition())
	}
	if n := len(cc.GetChanges()); n > maxMembers {
		return fmt.Errorf("%d conf changes exceed the limit of %d", n, maxMembers)
	}
	for _, c := range cc.GetChanges() {
		switch c.GetType() {
		case raftpb.ConfChangeAddNode, raftpb.ConfChangeRemoveNode,
			raftpb.ConfChangeUpdateNode, raftpb.ConfChangeAddLearnerNode:
		default:
			return fmt.Errorf("conf change of unknown type %d", c.GetType())
		}
		if raft.IsLocalMsgTarget(c.GetNodeId()) {
			return fmt.Errorf("conf change of member %s, which is reserved", ID(c.GetNodeId()))
		}
	}
	return nil
}

// maxMembers limits the members of a configuration. The time to check it grows with
// the square of their number.
const maxMembers = 256

// checkSnapshot requires metadata that raft can restore.
func checkSnapshot(m *raftpb.Message, _, self uint64) error {
	if m.GetType() != raftpb.MsgSnap {
		return nil
	}
	meta := m.GetSnapshot().GetMetadata()
	switch {
	case meta.GetIndex() == 0 || meta.GetTerm() == 0:
		return invalid(m, "snapshot", "index %d and term %d must not be 0", meta.GetIndex(), meta.GetTerm())
	case meta.GetIndex() > maxNumber-maxEntries:
		return invalid(m, "snapshot", "index %d exceeds the limit of %d", meta.GetIndex(), uint64(maxNumber-maxEntries))
	case meta.GetTerm() > m.GetTerm():
		return invalid(m, "snapshot", "of term %d in a message of term %d", meta.GetTerm(), m.GetTerm())
	case meta.GetConfState() == nil:
		return invalid(m, "snapshot", "without a configuration")
	}
	if err := checkConfState(meta.GetConfState(), meta.GetIndex(), self); err != nil {
		return invalid(m, "snapshot", "%v", err)
	}
	return nil
}

// checkConfState restores a snapshot's configuration as raft does (raft.go, restore
// and assertConfStatesEquivalent). Raft panics if that fails: for a member that is
// listed twice or in sets that exclude each other, without voters, for a future
// learner that is not an outgoing voter, and for AutoLeave without a joint
// configuration.
func checkConfState(cs *raftpb.ConfState, index, self uint64) error {
	found, n := false, 0
	for _, set := range [][]uint64{cs.GetVoters(), cs.GetLearners(), cs.GetVotersOutgoing(), cs.GetLearnersNext()} {
		n += len(set)
		for _, id := range set {
			if reservedID(id) {
				return fmt.Errorf("configuration with member %s, which is reserved", ID(id))
			}
			found = found || id == self
		}
	}
	switch {
	case n > maxMembers:
		return fmt.Errorf("configuration of %d members exceeds the limit of %d", n, maxMembers)
	case !found:
		// Raft ignores such a snapshot (raft.go, restore). The node must not restore
		// its state either.
		return fmt.Errorf("configuration does not include member %s, the receiver", ID(self))
	}
	tr := tracker.MakeProgressTracker(1, 0)
	cfg, progress, err := confchange.Restore(confchange.Changer{Tracker: tr, LastIndex: index}, cs)
	if err != nil {
		return fmt.Errorf("configuration cannot be restored: %w", err)
	}
	tr.Config, tr.Progress = cfg, progress
	if restored := tr.ConfState(); cs.Equivalent(restored) != nil {
		return fmt.Errorf("configuration %s becomes %s when it is restored", raft.DescribeConfState(cs), raft.DescribeConfState(restored))
	}
	return nil
}
