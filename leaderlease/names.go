package leaderlease

import (
	"github.com/leaderlease/go/leaderlease/core"
)

// Status says whether a lease read may be served, and if not, why. The zero value
// refuses. Refusals are ordered from the strongest to the weakest: a lease that is
// refused for two reasons reports the smaller one.
type Status = core.Status

// The values of a Status, from the strongest refusal to none.
const (
	// StatusNone is the zero value: nothing is known, so nothing is served.
	StatusNone = core.None
	// StatusClosed means that the lease was closed and will never serve again.
	StatusClosed = core.Closed
	// StatusDisabled means that leases are off, by configuration, because the embedding
	// broke a rule that the lease depends on, or because the *Lease is nil.
	StatusDisabled = core.Disabled
	// StatusRestartHold means that the node has restarted a short while ago, or that its
	// clock could not be relied on, and may neither vote nor campaign yet.
	StatusRestartHold = core.RestartHold
	// StatusNotLeader means that another node leads, or none.
	StatusNotLeader = core.NotLeader
	// StatusNotVoter means that the leader does not vote in its own configuration.
	StatusNotVoter = core.NotVoter
	// StatusNoOwnTermCommit means that the leader has not committed an entry of its own
	// term, so its commit index may be behind.
	StatusNoOwnTermCommit = core.NoOwnTermCommit
	// StatusConfPending means that a configuration change is committed whose result
	// ApplyConfState has not said yet.
	StatusConfPending = core.ConfPending
	// StatusTransferring means that leadership is being transferred.
	StatusTransferring = core.Transferring
	// StatusClockFault means that the clock failed, went backwards or was disrupted and
	// no quorum has answered since, or that too many clocks were found to run
	// outside the configured bound.
	StatusClockFault = core.ClockFault
	// StatusDiskStalled means that the embedder's disk does not answer: SetDiskStalled.
	StatusDiskStalled = core.DiskStalled
	// StatusExpired means that the end has passed, or that no quorum has answered yet.
	// Another leader may exist.
	StatusExpired = core.Expired
	// StatusMargin means that less than MaxClockSkew is left: no reads, but renewal is
	// still possible.
	StatusMargin = core.Margin
	// StatusValid means that a read may be served now.
	StatusValid = core.Valid
)

type (
	// PeerInfo is what a leader knows of another voter.
	PeerInfo = core.PeerInfo
	// PromiseInfo is what a node owes to a leader, and its restart hold.
	PromiseInfo = core.PromiseInfo

	// Instant is a reading of a clock.Clock.
	Instant = core.Instant
	// ProcessID identifies one process of one member, for embedders that call ProcessDied. The
	// zero value means unknown.
	//
	// An ID is random, or the hash of something random, and new for each process. Peers see
	// it, so it must not be enough to report the death. kvnode's IDs are hashes of secrets that
	// only the parent of the process holds, and a report reveals the secret.
	//
	// Two mistakes let two leaders have valid leases at the same time if ProcessDied is called
	// as well: an ID that an earlier process of the same member had (an operating system's
	// process ID is 1 in every container), and an ID that the receiver keeps per peer instead
	// of per connection.
	ProcessID = core.ProcessID
)
