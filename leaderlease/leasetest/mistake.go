package leasetest

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Mistake is a way to embed a Lease wrongly. None of them may make a read stale.
type Mistake uint8

const (
	// NoMistake embeds it as its documentation says.
	NoMistake Mistake = iota
	// NeverReady does all but call Lease.Ready.
	NeverReady
	// SendsCopy sends the messages of a copy of the Ready, made before the call.
	SendsCopy
	// SendsClones sends messages that were cloned, or put on the wire, before the
	// call, and does no more with those that the Lease has seen.
	SendsClones
	// ReadyTooLate calls Ready when the messages are on the wire, and what is to
	// be kept is.
	ReadyTooLate
	// TellsNoConf does not call ApplyConfState.
	TellsNoConf
)

func (n *Node) mistake() Mistake {
	if n.lease == nil || n.Options.Mistake == nil {
		return NoMistake
	}
	return n.Options.Mistake(n.Process())
}

// mistaken returns what of rd leaves a node that makes m.
func (n *Node) mistaken(m Mistake, rd *raft.Ready) []*raftpb.Message {
	if m == TellsNoConf {
		n.lease.Ready(rd)
		return rd.Messages
	}
	msgs := append([]*raftpb.Message(nil), rd.Messages...)
	if m == SendsClones || m == ReadyTooLate {
		for i := range msgs {
			msgs[i] = proto.CloneOf(msgs[i])
		}
	}
	if m == SendsCopy || m == SendsClones {
		n.lease.Ready(rd)
	}
	if m == SendsCopy {
		return msgs
	}
	return n.plainly(msgs)
}

// filterLate is where ReadyTooLate calls Ready.
func (n *Node) filterLate(rd *raft.Ready) {
	if n.mistake() == ReadyTooLate {
		n.lease.Ready(rd)
	}
}
