package transport

import (
	"fmt"
	"math"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// InvalidError names the rule that a message breaks.
type InvalidError struct {
	Type raftpb.MessageType
	Rule string // a word, for counters and tests
	Text string
}

// Error returns the message's type, if it is known, the rule and the text.
func (e *InvalidError) Error() string {
	if e.Type == raftpb.MsgHup { // no peer may send it
		return fmt.Sprintf("invalid message (%s): %s", e.Rule, e.Text)
	}
	return fmt.Sprintf("invalid %s (%s): %s", e.Type, e.Rule, e.Text)
}

func invalid(m *raftpb.Message, rule, format string, args ...any) error {
	return &InvalidError{Type: m.GetType(), Rule: rule, Text: fmt.Sprintf(format, args...)}
}

const (
	// maxNumber limits terms and indexes. Raft adds to them without a check for
	// overflow (raft.go, becomeCandidate and progress.go, MaybeUpdate).
	maxNumber = math.MaxInt64
	// campaignTransfer is the context of vote requests in a leadership transfer
	// (raft.go, campaign).
	campaignTransfer = "CampaignTransfer"
	// heartbeatContextSize is the size of the context in heartbeats and their responses
	// (read_only.go, heartbeatCtx).
	heartbeatContextSize = 8
	// maxReadContext limits the context that identifies a read. The lease library
	// needs 16 bytes (leaderlease/rounds.go).
	maxReadContext = 1 << 10
)

// rule checks one thing about a message.
type rule struct {
	name  string
	check func(m *raftpb.Message, from, self uint64) error
}

// rules is the list of checks in Validate, in order. TestRaftPanicsWithoutTheRule
// shows what raft does without a rule.
var rules = []rule{
	{"nil", checkPresent},
	{"type", checkType},
	{"address", checkAddress},
	{"numbers", checkNumbers},
	{"term", checkTerm},
	{"context", checkContext},
	{"foreign", checkUnusedFields},
	{"entries", checkEntries},
	{"snapshot", checkSnapshot},
}

// Validate returns an *InvalidError if raft must not get m from peer from: raft
// would panic, or no peer sends such a message. ValidateAgainst has the checks that
// depend on the state of raft.
func Validate(m *raftpb.Message, from, self uint64) error {
	for i := range rules {
		if err := rules[i].check(m, from, self); err != nil {
			return err
		}
	}
	return nil
}

// checkPresent refuses nil, so the other rules can rely on a message.
func checkPresent(m *raftpb.Message, _, _ uint64) error {
	if m == nil {
		return &InvalidError{Rule: "nil", Text: "message is nil"}
	}
	return nil
}

// checkType accepts the types that members send to each other. It refuses
//
//   - types that do not exist. Raft panics for negative ones (util.go,
//     isMsgInArray, called by rawnode.go, Step).
//   - types that a node sends to itself (util.go, IsLocalMsg). Step refuses them
//     unless they name a storage thread. Then appliedTo may panic (log.go).
//   - MsgForgetLeader, which makes a follower forget its leader (raft.go,
//     stepFollower).
//   - MsgTransferLeader. A follower forwards it, and the next follower panics
//     because the term is set (raft.go, send). Clients request transfers from the
//     leader.
func checkType(m *raftpb.Message, _, _ uint64) error {
	switch t := m.GetType(); t {
	case raftpb.MsgProp, raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp,
		raftpb.MsgSnap, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow,
		raftpb.MsgReadIndex, raftpb.MsgReadIndexResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		return nil
	default:
		return invalid(m, "type", "members do not send messages of type %d to each other", t)
	}
}

// checkAddress requires that the message is from and to the two ends of the connection. A follower that takes
// itself for the leader panics when it responds or forwards (raft.go, send: "self-addressed"). A read from member
// 0 without an entry panics a leader (raft.go, responseToReadIndexReq).
func checkAddress(m *raftpb.Message, from, self uint64) error {
	switch {
	case m.GetFrom() != from:
		return invalid(m, "address", "from member %s on a connection of member %s", ID(m.GetFrom()), ID(from))
	case m.GetTo() != self:
		return invalid(m, "address", "to member %s, this is member %s", ID(m.GetTo()), ID(self))
	case from == self || reservedID(from):
		return invalid(m, "address", "from member %s, which cannot be a peer", ID(from))
	}
	return nil
}

// checkNumbers keeps terms and indexes from overflowing. After the greatest term a
// candidate's next term is 0, and raft panics (raft.go, becomeCandidate, send).
// After the greatest index the next index to send is 0 (progress.go, MaybeUpdate),
// and the log starts again at 0 (log_unstable.go, restore).
func checkNumbers(m *raftpb.Message, _, _ uint64) error {
	for _, n := range []struct {
		name  string
		value uint64
	}{
		{"term", m.GetTerm()},
		{"log term", m.GetLogTerm()},
		{"index", m.GetIndex()},
		{"commit", m.GetCommit()},
		{"reject hint", m.GetRejectHint()},
	} {
		// Leave room for the entries that follow the index.
		if n.value > maxNumber-maxEntries {
			return invalid(m, "numbers", "%s %d exceeds the limit of %d", n.name, n.value, uint64(maxNumber-maxEntries))
		}
	}
	return nil
}

// checkTerm requires a term. Raft takes a message without one for a local message
// (raft.go, Step): it panics for a vote in term 0 (raft.go, send), and a leader's
// message in term 0 resets a candidate's term (raft.go, stepCandidate). Messages
// that are forwarded to a leader must have no term, or raft panics (raft.go, send).
func checkTerm(m *raftpb.Message, _, _ uint64) error {
	switch m.GetType() {
	case raftpb.MsgProp, raftpb.MsgReadIndex:
		if m.GetTerm() != 0 {
			return invalid(m, "term", "term %d, want none", m.GetTerm())
		}
	default:
		if m.GetTerm() == 0 {
			return invalid(m, "term", "no term")
		}
	}
	return nil
}

// checkContext accepts the contexts that raft sends. A leader decodes the context of
// a heartbeat's response without a check of its length (read_only.go, recvAck). The
// response copies it from the heartbeat (raft.go, handleHeartbeat).
func checkContext(m *raftpb.Message, _, _ uint64) error {
	c := m.GetContext()
	ok := len(c) == 0
	switch m.GetType() {
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		ok = ok || len(c) == heartbeatContextSize
	case raftpb.MsgVote:
		ok = ok || string(c) == campaignTransfer
	}
	if !ok {
		return invalid(m, "context", "context of %d bytes does not belong to this type", len(c))
	}
	return nil
}

// checkUnusedFields refuses fields that belong to other types. Raft ignores them, so they
// only use memory. Old versions send an empty snapshot, which is accepted
// (raft.proto, Message.snapshot).
func checkUnusedFields(m *raftpb.Message, _, _ uint64) error {
	switch {
	case len(m.GetResponses()) > 0:
		return invalid(m, "foreign", "%d responses, which are for local storage", len(m.GetResponses()))
	case m.GetVote() != 0:
		return invalid(m, "foreign", "vote %s, which is for local storage", ID(m.GetVote()))
	case m.GetType() != raftpb.MsgSnap && !raft.IsEmptySnap(m.GetSnapshot()):
		return invalid(m, "foreign", "a snapshot, which only MsgSnap has")
	}
	return nil
}

// ValidateAgainst returns an *InvalidError if raft must not get m while the local
// log ends at lastIndex. Call it right before Step, in the goroutine that owns the
// RawNode.
//
// lastIndex is the last index of raft's log as of the newest Ready, or of Storage before the first Ready. It includes
// entries that are not on disk yet. Not covered: a faulty leader may have truncated the log below it since then.
//
//   - Raft panics for a heartbeat that commits beyond the log (log.go, commitTo).
//     The leader's heartbeat commits at most the index that this member has
//     acknowledged (raft.go, sendHeartbeat). So either this member has lost
//     acknowledged entries, and must stop, or the peer is faulty.
//   - If a follower acknowledges an index beyond the log, the leader takes its own
//     log for compacted, and panics without a snapshot (raft.go,
//     maybeSendSnapshot).
//
// Nor covered: raft counts the reads that a heartbeat confirms, and panics if a
// quorum of peers confirms reads that do not exist (read_only.go, maybeAdvance). One
// peer alone can do that only if it is a quorum.
func ValidateAgainst(m *raftpb.Message, lastIndex uint64) error {
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		if m.GetCommit() > lastIndex {
			return invalid(m, "commit", "commit %d is beyond the log, which ends at %d", m.GetCommit(), lastIndex)
		}
	case raftpb.MsgAppResp:
		if !m.GetReject() && m.GetIndex() > lastIndex {
			return invalid(m, "acknowledged", "index %d is beyond the log, which ends at %d", m.GetIndex(), lastIndex)
		}
	}
	return nil
}
