// Package votes keeps a candidate's requests back until its term is on its disk
// (V9), and knows those of a transfer.
//
// With AsyncStorageWrites raft 3.7 sends MsgVote in the Ready that begins to
// write the candidate's own term and vote. If the others' votes elect it and it
// crashes before that write, its next process starts in the term before, asks
// for the same term once more, and a voter repeats its vote to the same
// candidate: two processes have led one term, and entries of one index and one
// term differ (docs/raft-durability.md).
package votes

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Void makes of m, which must not leave, what no raft steps: a message that is
// local to its sender. Sending it from a copy of the Ready does no harm.
func Void(m *raftpb.Message) { m.Type = raftpb.MsgUnreachable.Enum() }

// AfterTerm moves each MsgVote of one Ready into the Responses of the
// MsgStorageAppend that makes its term durable, and returns the other messages.
// Votes whose term no write of this Ready holds are returned as stray and must
// not leave: raft 3.7 makes none. The slice msgs is not changed; a vote that is
// moved is a new message, and the one in msgs is void.
func AfterTerm(msgs []*raftpb.Message) (kept, stray []*raftpb.Message) {
	if !slices.ContainsFunc(msgs, asks) {
		return msgs, nil
	}
	var requests []*raftpb.Message
	var write *raftpb.Message
	for _, m := range msgs {
		if asks(m) {
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
		// Raft may still hold the array.
		write.Responses = append(slices.Clip(write.GetResponses()), proto.CloneOf(m))
		Void(m)
	}
	return kept, stray
}

// CampaignTransfer is how raft marks the requests for votes of a transfer (raft.go,
// campaignTransfer); they pass raft's own CheckQuorum lease.
const CampaignTransfer = "CampaignTransfer"

// OfTransfer reports whether m has the mark of a transfer's requests.
func OfTransfer(m *raftpb.Message) bool { return string(m.GetContext()) == CampaignTransfer }

// MarkResignation marks a MsgTimeoutNow as one of a leader that does not go on. Raft looks at
// nothing in it but its type and its term.
func MarkResignation(m *raftpb.Message) { m.Reject = new(true) }

// OfResignation reports whether m, a MsgTimeoutNow, has that mark.
func OfResignation(m *raftpb.Message) bool { return m.GetReject() }

// MarkObituary marks a MsgTimeoutNow as one that a follower makes for itself, since its leader is
// known to be dead.
func MarkObituary(m *raftpb.Message) { m.Context = []byte(obituary) }

// OfObituary reports whether m, a MsgTimeoutNow, has that mark.
func OfObituary(m *raftpb.Message) bool { return string(m.GetContext()) == obituary }

const obituary = "Obituary"

func asks(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgVote }
