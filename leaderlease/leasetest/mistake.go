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
	// SendsClones sends clones of the messages that were made before the call, and drops the
	// messages that the Lease has seen.
	SendsClones
	// ReadyTooLate calls Ready after the messages are sent and the entries are written.
	ReadyTooLate
	// TellsNoConf does not call ApplyConfState.
	TellsNoConf
	// TellsConfTwice calls ApplyConfState for the change before, too.
	TellsConfTwice
	// RepeatsConf calls ApplyConfState for the entry after the change, too.
	RepeatsConf
	// TellsOldConf does so with the configuration before the change.
	TellsOldConf
	// TellsConfAhead takes a change for the newest that raft has handed out.
	TellsConfAhead
	// TellsConfAgain calls ApplyConfState for the previous change when a change is handed out.
	TellsConfAgain
	// ClaimsConf claims that Storage has all changes of the log, which is false.
	ClaimsConf
)

// isAboutConf reports whether m is a mistake with ApplyConfState or ConfIndex only.
func (m Mistake) isAboutConf() bool { return m >= TellsNoConf }

func (n *Node) mistake() Mistake {
	if n.lease == nil {
		return NoMistake
	}
	return n.chosen()
}

// chosen returns the mistake of the process, even if it has no Lease yet.
func (n *Node) chosen() Mistake {
	if n.Options.Mistake == nil {
		return NoMistake
	}
	return n.Options.Mistake(n.Process())
}

// mistaken returns the messages of rd that leave a node that makes m.
func (n *Node) mistaken(m Mistake, rd *raft.Ready) []*raftpb.Message {
	if m.isAboutConf() {
		n.lease.Ready(rd)
		if m == TellsConfAgain && n.made > 0 && newestChange(rd.CommittedEntries) > n.made {
			n.lease.ApplyConfState(n.made, n.conf)
		}
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

// tellConf tells the Lease of the change that the node has just made; before is the
// configuration before it, which the change at made led to.
func (n *Node) tellConf(made uint64, before *raftpb.ConfState) {
	if n.lease == nil {
		return
	}
	switch n.mistake() {
	case TellsNoConf:
		return
	case TellsConfAhead:
		n.lease.ApplyConfState(n.handed, n.conf)
		return
	}
	n.lease.ApplyConfState(n.made, n.conf)
	switch n.mistake() {
	case TellsConfTwice:
		n.lease.ApplyConfState(made, before)
	case RepeatsConf:
		n.lease.ApplyConfState(n.made+1, n.conf)
	case TellsOldConf:
		n.lease.ApplyConfState(n.made+1, before)
	}
}

// changesUpTo returns Config.ConfIndex: Storage has all changes up to that index.
func (n *Node) changesUpTo() uint64 {
	if n.chosen() == ClaimsConf {
		last, err := n.disk.LastIndex()
		must(err)
		return last
	}
	if m, ok := n.machine.(confIndexed); ok {
		return m.changesUpTo()
	}
	return 0
}
