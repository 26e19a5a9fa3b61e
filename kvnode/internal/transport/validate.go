package transport

import (
	"fmt"
	"math"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// InvalidError says which rule a message breaks.
type InvalidError struct {
	Type raftpb.MessageType
	Rule string // a word, for counters and tests
	Text string
}

// Error names the message's type and what is wrong with it.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %s (%s): %s", e.Type, e.Rule, e.Text)
}

func invalid(m *raftpb.Message, rule, format string, args ...any) error {
	return &InvalidError{Type: m.GetType(), Rule: rule, Text: fmt.Sprintf(format, args...)}
}

const (
	// maxNumber bounds terms and indexes: raft adds to them without a look at
	// overflow (raft.go, becomeCandidate and progress.go, MaybeUpdate).
	maxNumber = math.MaxInt64
	// campaignTransfer is how raft marks the votes of a leadership transfer
	// (raft.go, campaign).
	campaignTransfer = "CampaignTransfer"
	// readPosition is the size of raft's context of heartbeats and their answers
	// (read_only.go, heartbeatCtx).
	readPosition = 8
	// maxReadContext bounds what identifies a read. The lease library needs 16
	// bytes (leaderlease/rounds.go).
	maxReadContext = 1 << 10
)

// rule checks one thing about a message.
type rule struct {
	name  string
	check func(m *raftpb.Message, from, self uint64) error
}

// rules are what Validate checks, in this order. What raft would do without a
// rule is shown by TestRaftPanicsWithoutTheRule.
var rules = []rule{
	{"nil", checkPresent},
	{"type", checkType},
	{"address", checkAddress},
	{"numbers", checkNumbers},
	{"term", checkTerm},
	{"context", checkContext},
	{"foreign", checkForeign},
	{"entries", checkEntries},
	{"snapshot", checkSnapshot},
}

// Validate reports why a message from peer from must not reach raft, nil if it
// may: what raft would panic on, or what no peer sends. The error is an
// *InvalidError. What depends on the state of raft is ValidateAgainst's.
func Validate(m *raftpb.Message, from, self uint64) error {
	for i := range rules {
		if err := rules[i].check(m, from, self); err != nil {
			return err
		}
	}
	return nil
}

// checkPresent keeps the other rules simple: raft.go's Step refuses nil itself.
func checkPresent(m *raftpb.Message, _, _ uint64) error {
	if m == nil {
		return &InvalidError{Rule: "nil", Text: "message is nil"}
	}
	return nil
}

// checkType refuses types that do not exist, of which negative ones panic
// (util.go, isMsgInArray, from rawnode.go's Step); those that a node sends to
// itself (util.go, IsLocalMsg: rawnode.go's Step refuses them unless they name a
// storage thread, when log.go's appliedTo may panic); and two more:
//
//   - MsgForgetLeader would make a follower forget its leader (raft.go,
//     stepFollower).
//   - MsgTransferLeader is for the leader. A follower passes it on, and panics if
//     another follower had done so before: the term is set (raft.go, send). Ask
//     the leader.
func checkType(m *raftpb.Message, _, _ uint64) error {
	switch t := m.GetType(); t {
	case raftpb.MsgProp, raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp,
		raftpb.MsgSnap, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgTimeoutNow,
		raftpb.MsgReadIndex, raftpb.MsgReadIndexResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		return nil
	default:
		return invalid(m, "type", "type %d is not one that members send to each other", t)
	}
}

// checkAddress binds the message to the two ends of the connection. A follower
// that takes itself for its leader panics when it answers or passes something on
// (raft.go, send: "self-addressed"), and a read in nobody's name panics a leader
// (raft.go, responseToReadIndexReq).
func checkAddress(m *raftpb.Message, from, self uint64) error {
	switch {
	case m.GetFrom() != from:
		return invalid(m, "address", "from member %s on a connection of member %s", ID(m.GetFrom()), ID(from))
	case m.GetTo() != self:
		return invalid(m, "address", "to member %s, this is member %s", ID(m.GetTo()), ID(self))
	case from == self || reservedID(from):
		return invalid(m, "address", "from member %s, which is no peer", ID(from))
	}
	return nil
}

// checkNumbers keeps terms and indexes away from overflow. At the greatest term
// a candidate's next one is 0, which panics (raft.go, becomeCandidate, send); at
// the greatest index the next one to send is 0 (progress.go, MaybeUpdate), and
// the log begins anew (log_unstable.go, restore).
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
		// The entries that follow an index are counted, so leave room for them.
		if n.value > maxNumber-maxEntries {
			return invalid(m, "numbers", "%s %d exceeds the limit of %d", n.name, n.value, uint64(maxNumber-maxEntries))
		}
	}
	return nil
}

// checkTerm requires a term, which raft takes for a sign of a local message
// where it lacks (raft.go, Step): a vote in term 0 panics (raft.go, send), and
// term 0 of a leader resets a candidate's term (raft.go, stepCandidate). What is
// passed on to a leader has none, and panics with one (raft.go, send).
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

// checkContext allows what raft puts there. A leader decodes the context of a
// heartbeat's answer without a look at its length (read_only.go, recvAck), and
// the answer repeats what the heartbeat had (raft.go, handleHeartbeat).
func checkContext(m *raftpb.Message, _, _ uint64) error {
	c := m.GetContext()
	ok := len(c) == 0
	switch m.GetType() {
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		ok = ok || len(c) == readPosition
	case raftpb.MsgVote:
		ok = ok || string(c) == campaignTransfer
	}
	if !ok {
		return invalid(m, "context", "context of %d bytes is not one of this type", len(c))
	}
	return nil
}

// checkForeign refuses fields that belong to other types. Raft ignores them, so
// they are nothing but memory. An empty snapshot is what old members send
// (raft.proto, Message.snapshot).
func checkForeign(m *raftpb.Message, _, _ uint64) error {
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

// ValidateAgainst reports why m must not reach raft given the last index of the
// local log: conditions that Validate cannot know. The error is an
// *InvalidError. Call it right before Step, in the goroutine that owns the
// RawNode.
//
// The last index is that of raft's own log, including what is not on disk yet:
// of the newest of all Ready's entries and snapshots so far, else of Storage. It
// is exact if there was a Ready after the last MsgApp that was stepped; before, a
// faulty leader may have cut the log shorter than it says.
//
//   - A heartbeat that commits beyond the log panics (log.go, commitTo). The
//     leader commits at most what this member has acknowledged (raft.go,
//     sendHeartbeat), so this means that the member has lost acknowledged
//     entries, which is worth stopping for, or that the peer is broken.
//   - A leader whose follower acknowledges what was never sent takes its own log
//     for compacted, and panics without a snapshot (raft.go, maybeSendSnapshot).
//
// Not covered: raft counts how many reads a heartbeat confirms, and panics if a
// quorum of peers confirm reads that were never asked (read_only.go,
// maybeAdvance). One peer alone cannot do that unless it is a quorum.
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
