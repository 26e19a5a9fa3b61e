package kvnode

import (
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/raftwal"
)

// counts are what Status tells of the past.
type counts struct {
	checkpoints       *durations.Histogram
	failedCheckpoints atomic.Uint64
	// failure is why the newest checkpoint was not made.
	failure   atomic.Pointer[error]
	malformed atomic.Uint64
}

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

func (c *counts) init() { c.checkpoints = durations.New(raftwal.SyncBounds) }

func (c *counts) checkpoint(took time.Duration, err error) {
	if err != nil {
		c.failure.Store(&err)
		c.failedCheckpoints.Add(1)
		return
	}
	c.failure.Store(nil)
	c.checkpoints.Note(took)
}

func (c *counts) checkpointErr() error {
	if err := c.failure.Load(); err != nil {
		return *err
	}
	return nil
}

func (c *counts) load() Counts {
	saved := c.checkpoints.Load()
	return Counts{
		Checkpoints: saved.Count, FailedCheckpoints: c.failedCheckpoints.Load(),
		CheckpointTime: saved.Sum, MaxCheckpointTime: saved.Max, CheckpointWithin: saved.Within,
		Malformed: c.malformed.Load(),
	}
}

// malformed counts an entry, or a peer's proposal, that nobody should have written. The
// state is sound, the same on all members, so there is no alarm that stops clients.
func (n *Node) malformed(err error, args ...any) {
	n.counts.malformed.Add(1)
	n.complain.Do(func() {
		n.log.Error("an entry that does not decode has no effect: is a peer faulty, or not one?", append(args, "error", err)...)
	})
}
