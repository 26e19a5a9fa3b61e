package leasetrace

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// message holds the fields that the traces of both the sender and the receiver record.
// A message may be received more than once, or never.
type message struct {
	kind      Kind
	from, to  uint64
	term      uint64
	instant   core.Instant
	rest      [3]uint64
	onMessage raftpb.MessageType
}

// sending returns the message that an event sends.
func sending(id uint64, e *Event) (m message, ok bool) {
	switch e.Kind {
	case KindProbe, KindGrant, KindCandidacy, KindVoteOut, KindRelease:
		return carried(e.Kind, id, e.Peer, e), e.OK
	default:
		return message{}, false
	}
}

// receiving returns the message that an event receives.
func receiving(id uint64, e *Event) (m message, ok bool) {
	switch e.Kind {
	case KindPromise:
		m = carried(KindProbe, e.Peer, id, e)
		m.rest[2] = 0 // the process is not in the message: its connection has named it
		return m, true
	case KindCount:
		return carried(KindGrant, e.Peer, id, e), true
	case KindVoteIn:
		return carried(KindVoteOut, e.Peer, id, e), true
	case KindRequest:
		if e.Message == raftpb.MsgTimeoutNow {
			return carried(KindRelease, e.Peer, id, e), e.Number != 0 && !isDeathNotice(e)
		}
		return carried(KindCandidacy, e.Peer, id, e), true
	default:
		return message{}, false
	}
}

func carried(k Kind, from, to uint64, e *Event) message {
	return message{
		kind: k, from: from, to: to, term: e.Term, instant: e.Instant, onMessage: e.Message,
		rest: [3]uint64{uint64(e.Duration), uint64(e.Reading), e.Number},
	}
}

// sentAt returns when the message was sent by the sender's clock, 0 if it does not say.
func (m *message) sentAt() core.Instant {
	switch m.kind {
	case KindProbe, KindRelease:
		return m.instant
	case KindGrant:
		return core.Instant(m.rest[1])
	default:
		return 0
	}
}

// mayPrecede reports whether the message may be of a process without a trace, before
// the first of its sender's that has one. Votes wait for their term to be durable (V9).
func (m *message) mayPrecede(first *Start) bool {
	switch at := m.sentAt(); {
	case first.Hold == 0:
		return false // it is the first of all
	case at != 0:
		return at < first.At
	default:
		return m.term <= first.Term || m.onMessage == raftpb.MsgPreVote || m.onMessage == raftpb.MsgPreVoteResp
	}
}
