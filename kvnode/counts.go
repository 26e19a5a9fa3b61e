package kvnode

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Counts is what a member has done since its start.
type Counts struct {
	// Checkpoints counts those that were made, and FailedCheckpoints those that
	// were not, for lack of room for example. CheckpointTime is how long the
	// former took together, MaxCheckpointTime the longest of them.
	Checkpoints, FailedCheckpoints    uint64
	CheckpointTime, MaxCheckpointTime time.Duration
	// CheckpointWithin counts those that took no longer than each of raftwal.SyncBounds.
	CheckpointWithin []uint64
	// FailedProposals counts this member's proposals of which nothing became, or
	// nobody knows what: all that ended with an error other than the request's
	// own.
	FailedProposals uint64
	// FailedReads counts this member's linearizable reads that were not served. Those
	// in the mode log are proposals.
	FailedReads uint64
	// Malformed counts entries of the log that no version up to this one writes, which
	// do nothing on any member, and proposals of peers that would have become such.
	Malformed uint64
}

// counts are figures for Status.
func (n *Node) counts() Counts {
	c := &n.checkpoints
	saved := c.took.Load()
	return Counts{
		Checkpoints: saved.Count, FailedCheckpoints: c.failed.Load(),
		CheckpointTime: saved.Sum, MaxCheckpointTime: saved.Max, CheckpointWithin: saved.Within,
		FailedProposals: n.proposals.failed.Load(), FailedReads: n.reads.failed.Load(), Malformed: n.complaints.count.Load(),
	}
}

// complaints are about entries, and peers' proposals, that nobody should have written.
type complaints struct {
	count atomic.Uint64
	said  rate.Sometimes
}

// malformed counts such a one. The state is sound, the same on all members, so there is no
// alarm that stops clients.
func (p *parts) malformed(err error, args ...any) {
	p.complaints.count.Add(1)
	p.complaints.said.Do(func() {
		p.log.Error("an entry that does not decode has no effect: is a peer faulty, or not one?", append(args, "error", err)...)
	})
}
