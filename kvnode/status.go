package kvnode

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/raftwal"
)

// Status is everything there is to know about a member at one moment.
type Status struct {
	ID, ClusterID uint64
	Name          string
	Term, Leader  uint64
	Learner       bool
	// Lease and Stats are the leader lease's.
	Lease leaderlease.Info
	Stats leaderlease.Stats
	// Suspicions is what this member has suspected its leaders of, and how the last one
	// was replaced.
	Suspicions detector.Stats
	// Commit and Applied are indexes of the log, Last its end.
	Commit, Applied, Last uint64
	// Checkpoint is the newest durable state.
	Checkpoint store.Checkpoint
	WAL        raftwal.Stats
	Peers      []transport.PeerStatus
	// Names are the members' names, also of peers that were never reached.
	Names map[uint64]string
	// Awaited is Node.Awaited.
	Awaited []string
	// Format is the cluster's, NewestFormat what this member's version knows, and
	// FormatKeptBy who keeps the former from being the latter, and why.
	Format, NewestFormat int64
	FormatKeptBy         []string
	// Waiting is the number of proposals under way.
	Waiting int
	// Counts is what has happened since the start.
	Counts Counts
	// Late is how late the raft loop came to each of its ticks since the start: late
	// heartbeats cost the lease first, then the leadership. Ticks that were missed
	// altogether count as one, as late as the first of them.
	Late durations.Counts
	// Replaying means that stale reads still wait, since the start, for what is not older
	// than what this member had acknowledged before.
	Replaying bool
	// DiskFull means that writes are refused until there is room.
	DiskFull bool
	// CheckpointErr is why the newest checkpoint could not be made, nil if it was.
	CheckpointErr error
	// Alarms are those that are raised. They are shared and must not be changed.
	Alarms []*pb.AlarmMember
	// Err is why the node has failed, if it has.
	Err error
}

// LinkMetrics exports what the links to the peers count. The caller registers it.
func (n *Node) LinkMetrics() prometheus.Collector { return transport.NewCollector(n.links) }

// Status describes the member as of now.
func (n *Node) Status() Status {
	lease := n.lease.Info()
	_, keptBy := n.formats.common()
	s := Status{
		ID: n.ID(), ClusterID: n.ClusterID(), Name: n.cfg.Name, Term: n.Term(), Leader: n.Leader(),
		Learner: n.store.Members().ByID[n.ID()].Learner,
		Lease:   lease, Stats: n.lease.Stats(), Suspicions: n.Suspicions(),
		Commit: lease.Commit, Applied: n.store.Applied(), Last: n.last.Load(),
		Checkpoint: n.store.Durable(), WAL: n.wal.Stats(), Peers: n.links.Peers(), Names: n.book.names(), Awaited: n.Awaited(),
		Format: n.store.Format(), NewestFormat: n.cfg.newestFormat, FormatKeptBy: keptBy,
		Replaying: !n.replay.isOver(), Waiting: n.proposals.Stats().Waiting, Counts: n.counts(), Late: n.loop.late.Load(), DiskFull: n.disk.IsFull(),
		CheckpointErr: n.checkpoints.Stats().Err, Alarms: n.store.Alarms(), Err: n.Err(),
	}
	return s
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
	// VoidedProposals counts attempts of this member's that no leader has replicated in the term that they
	// were for. What they were for was proposed again, and is a failure only if that has failed.
	VoidedProposals uint64
	// FailedReads counts this member's linearizable reads that were not served. Those
	// in the mode log are proposals.
	FailedReads uint64
	// Malformed counts entries of the log that no version up to this one writes, which
	// do nothing on any member, and proposals of peers that would have become such.
	Malformed uint64
}

// counts are figures for Status.
func (n *Node) counts() Counts {
	c, proposed := n.checkpoints.Stats(), n.proposals.Stats()
	return Counts{
		Checkpoints: c.Took.Count, FailedCheckpoints: c.Failed,
		CheckpointTime: c.Took.Sum, MaxCheckpointTime: c.Took.Max, CheckpointWithin: c.Took.Within,
		FailedProposals: proposed.Failed, VoidedProposals: proposed.Voided, FailedReads: n.reads.failed.Load(), Malformed: n.invalid.count.Load(),
	}
}
