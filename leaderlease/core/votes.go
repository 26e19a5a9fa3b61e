package core

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Void turns m into MsgUnreachable, which raft never steps when it comes from a peer. A message
// that must not leave becomes harmless this way, even if the embedder sends it from a copy of the
// Ready.
func Void(m *raftpb.Message) { m.Type = raftpb.MsgUnreachable.Enum() }

// DelayVotes moves each MsgVote of one Ready into the Responses of the MsgStorageAppend that makes
// its term durable (V9), and returns the other messages. If no write of this Ready makes its
// term durable, a MsgVote is returned in stray and must not leave; raft 3.7 makes no such Ready. DelayVotes does not
// change the slice msgs. It moves a clone of the MsgVote, and voids the original.
//
// With AsyncStorageWrites raft 3.7 sends MsgVote in the Ready that begins to write the candidate's
// term and vote. Suppose the candidate is elected and crashes before that write. Its next process
// starts in the term before and campaigns for the same term again. The voters repeat their votes,
// since the candidate is the same. Two processes have then led one term, and entries of equal index
// and term differ (docs/raft-durability.md).
func DelayVotes(msgs []*raftpb.Message) (kept, stray []*raftpb.Message) {
	if !slices.ContainsFunc(msgs, isVoteRequest) {
		return msgs, nil
	}
	var requests []*raftpb.Message
	var write *raftpb.Message
	for _, m := range msgs {
		if isVoteRequest(m) {
			requests = append(requests, m)
			continue
		}
		if m.GetType() == raftpb.MsgStorageAppend {
			write = m
		}
		kept = append(kept, m)
	}
	for _, m := range requests {
		if write.GetTerm() < m.GetTerm() {
			stray = append(stray, m)
			continue
		}
		// Raft may still hold the array of Responses.
		write.Responses = append(slices.Clip(write.GetResponses()), proto.CloneOf(m))
		Void(m)
	}
	return kept, stray
}

func isVoteRequest(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgVote }

// CampaignTransfer is the Context with which raft marks the MsgVote of a leadership transfer
// (campaignTransfer in raft.go). Such a vote passes raft's own CheckQuorum lease.
const CampaignTransfer = "CampaignTransfer"

// IsForcedVote reports whether m, a MsgVote, has that mark.
func IsForcedVote(m *raftpb.Message) bool { return string(m.GetContext()) == CampaignTransfer }

// MarkResignation marks m, a MsgTimeoutNow, as sent by a leader that shuts down. Raft reads only
// the type and the term of a MsgTimeoutNow.
func MarkResignation(m *raftpb.Message) { m.Reject = new(true) }

// IsResignation reports whether m, a MsgTimeoutNow, has that mark.
func IsResignation(m *raftpb.Message) bool { return m.GetReject() }

// MarkProcessDied marks m, a MsgTimeoutNow, as made by a follower for itself, because the leader's
// process has died.
func MarkProcessDied(m *raftpb.Message) { m.Context = []byte(processDied) }

// IsProcessDied reports whether m, a MsgTimeoutNow, has that mark.
func IsProcessDied(m *raftpb.Message) bool { return string(m.GetContext()) == processDied }

const processDied = "ProcessDied"
