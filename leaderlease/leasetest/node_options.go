package leasetest

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// Kind says what a node runs.
type Kind uint8

const (
	// Library runs raft with a Lease in front: the default.
	Library Kind = iota
	// Plain runs raft without one; it promises nothing.
	Plain
	// Stock runs raft with its own ReadOnlyLeaseBased: the negative control.
	Stock
)

// NodeOptions choose how a node runs. The zero value is the simplest.
type NodeOptions struct {
	Kind Kind
	// Async uses AsyncStorageWrites.
	Async bool
	// HastyVotes, with Async, lets requests for votes leave before their term is
	// durable, as raft does by itself; for nodes without the library only.
	HastyVotes bool
	// DiskDelay and ApplyDelay return how long the next write and the next
	// batch of entries take. Nil means no time.
	DiskDelay, ApplyDelay func() time.Duration
	// EarlyAdvance, without Async, calls Advance before the entries of the Ready are
	// applied, as etcd's leader does: ApplyConfState comes after it.
	EarlyAdvance bool
	// QueueWhileBusy keeps messages back while a write is under way without
	// AsyncStorageWrites; otherwise raft steps them meanwhile, as raft.Node does.
	QueueWhileBusy bool
	// FilterOnArrival asks Incoming when a message arrives, before it queues,
	// as a transport goroutine does, and not when raft is about to step it.
	FilterOnArrival bool
	// Suspects runs package detector on a node of Kind Library: the node acts upon Gone, and
	// takes turns with others to campaign.
	Suspects bool
	// Learn, with Suspects, is for how long the node watches a leader before it suspects
	// unusually long silence. Zero means that it never does.
	Learn time.Duration
	// ForgetsChanges applies changes of membership before their commit index is durable.
	// NoCommitHints leaves the commit index out of vote answers. Both are negative controls.
	ForgetsChanges, NoCommitHints bool
	// HardStateAlone starts with the commit index of the hard state, whatever changes of
	// membership the log holds: a negative control.
	HardStateAlone bool
	// Mistake returns how the given process of the node, counted from 1, embeds
	// its Lease wrongly: a negative control. Nil means none.
	Mistake func(process int) Mistake
	// StepDelay returns how long after Incoming was asked raft steps a message,
	// with FilterOnArrival. Messages of several connections overtake each other
	// there, as they do on a transport's goroutines. Nil means no time.
	StepDelay func(m *raftpb.Message) time.Duration
}
