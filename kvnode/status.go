package kvnode

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/kvnode/internal/ttl"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/raftwal"
)

// Status is the state of a member at one moment.
type Status struct {
	ID, ClusterID uint64
	Name          string
	Term, Leader  uint64
	Learner       bool
	// Lease and LeaseStats are those of the leader lease.
	Lease      leaderlease.Info
	LeaseStats leaderlease.Stats
	// Suspicions counts this member's suspicions of its leaders, and says how the last leader was
	// replaced.
	Suspicions detector.Stats
	// Commit and Applied are indexes of the log, Last its end.
	Commit, Applied, Last uint64
	// Checkpoint is the newest durable state.
	Checkpoint store.Checkpoint
	WAL        raftwal.Stats
	Peers      []transport.PeerStatus
	// Names are the names of all members by ID, including peers that were never reached.
	Names map[uint64]string
	// Awaited describes the members of which some must accept this one before it takes part, by name and peer URLs. It
	// is empty once this member takes part.
	Awaited []string
	// ClusterVersion is the cluster version now, and NewestClusterVersion is the newest that this member knows.
	// ClusterVersionKeptBy describes the members that keep the former below the latter.
	ClusterVersion, NewestClusterVersion int64
	ClusterVersionKeptBy                 []string
	// Waiting is the number of pending proposals.
	Waiting int
	// Counts counts events since the start.
	Counts Counts
	// Late is how late the raft loop was at each tick since the start. Several missed ticks count as one, as late
	// as the first of them.
	Late durations.Counts
	// TTL is what this member, as leader, has done for TTL leases.
	TTL ttl.Stats
	// Replaying means that serializable reads wait, because this member may not have applied yet what it acknowledged
	// before its start.
	Replaying bool
	// DiskFull means that the member refuses writes until there is free space.
	DiskFull bool
	// CheckpointErr is the error of the newest checkpoint, nil if it was made.
	CheckpointErr error
	// Alarms are the active alarms. They are shared and must not be changed.
	Alarms []*pb.AlarmMember
	// Err is the error that has ended the node, if it has failed.
	Err error
}

// LinkMetrics returns the metrics of the connections to the peers. The caller registers them.
func (n *Node) LinkMetrics() prometheus.Collector { return transport.NewCollector(n.links) }

// Status returns the present state of the member.
func (n *Node) Status() Status {
	lease := n.lease.Info()
	_, keptBy := n.versions.common()
	return Status{
		ID: n.ID(), ClusterID: n.ClusterID(), Name: n.cfg.Name, Term: n.Term(), Leader: n.Leader(),
		Learner: n.store.Members().ByID[n.ID()].Learner,
		Lease:   lease, LeaseStats: n.lease.Stats(), Suspicions: n.Suspicions(),
		Commit: lease.Commit, Applied: n.store.Applied(), Last: n.last.Load(),
		Checkpoint: n.store.Durable(), WAL: n.wal.Stats(), Peers: n.links.Peers(), Names: n.members.Names(), Awaited: n.loop.admission.Awaited(),
		ClusterVersion: n.store.ClusterVersion(), NewestClusterVersion: n.cfg.newestClusterVersion, ClusterVersionKeptBy: keptBy,
		Replaying: !n.replay.isOver(), Waiting: n.proposals.Stats().Waiting, Counts: counts(n), Late: n.loop.late.Load(), TTL: n.ttl.Stats(), DiskFull: n.disk.IsFull(),
		CheckpointErr: n.checkpoints.Stats().Err, Alarms: n.store.Alarms(), Err: n.Err(),
	}
}

// Counts counts events of a member since its start.
type Counts struct {
	// Checkpoints is the number of checkpoints that were made, CheckpointTime their total time, and
	// MaxCheckpointTime the longest. FailedCheckpoints is the number of those that failed, because the
	// disk was full for example.
	Checkpoints, FailedCheckpoints    uint64
	CheckpointTime, MaxCheckpointTime time.Duration
	// CheckpointWithin counts the checkpoints that took no longer than each of raftwal.SyncBounds.
	CheckpointWithin []uint64
	// FailedProposals counts the proposals of this member that failed or have an unknown outcome. The
	// error of a request that was applied does not count.
	FailedProposals uint64
	// VoidedProposals counts this member's attempts to propose a command that were not committed in their term. Each
	// command was proposed again, and counts as failed only if it failed in the end.
	VoidedProposals uint64
	// FailedReads counts the linearizable reads that failed, except those that their client cancelled. Reads
	// of mode log count as proposals.
	FailedReads uint64
	// Malformed counts entries of the log, and proposals of peers, that no version up to this one writes. They have
	// no effect on any member.
	Malformed uint64
}

func counts(n *Node) Counts {
	c, proposed := n.checkpoints.Stats(), n.proposals.Stats()
	return Counts{
		Checkpoints: c.Took.Count, FailedCheckpoints: c.Failed,
		CheckpointTime: c.Took.Sum, MaxCheckpointTime: c.Took.Max, CheckpointWithin: c.Took.Within,
		FailedProposals: proposed.Failed, VoidedProposals: proposed.Voided, FailedReads: n.reads.failed.Load(), Malformed: n.applier.invalid.count.Load(),
	}
}
