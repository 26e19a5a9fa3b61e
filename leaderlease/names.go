package leaderlease

import (
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// Status says whether a lease read may be served, and if not, why. The zero value
// refuses. Refusals are ordered from the strongest to the weakest: a lease that is
// refused for two reasons reports the smaller one.
type Status = core.Status

// The values of a Status, from the strongest refusal to none.
const (
	// None is the zero value: nothing is known, so nothing is served.
	None = core.None
	// Closed means that the lease was closed and will never serve again.
	Closed = core.Closed
	// Disabled means that leases are off, by configuration, because the embedding
	// broke a rule that the lease depends on, or because the *Lease is nil.
	Disabled = core.Disabled
	// RestartHold means that the node has restarted a short while ago, or that its
	// clock could not be relied on, and may neither vote nor campaign yet.
	RestartHold = core.RestartHold
	// NotLeader means that another node leads, or none.
	NotLeader = core.NotLeader
	// NotVoter means that the leader does not vote in its own configuration.
	NotVoter = core.NotVoter
	// NoOwnTermCommit means that the leader has not committed an entry of its own
	// term, so its commit index may be behind.
	NoOwnTermCommit = core.NoOwnTermCommit
	// ConfPending means that a configuration change is committed whose result
	// ApplyConfState has not said yet.
	ConfPending = core.ConfPending
	// Transferring means that leadership is being transferred.
	Transferring = core.Transferring
	// ClockFault means that the clock failed, went backwards or was disrupted and
	// no quorum has answered since, or that too many clocks were found to run
	// outside the configured bound.
	ClockFault = core.ClockFault
	// DiskStalled means that the embedder's disk does not answer: SetDiskStalled.
	DiskStalled = core.DiskStalled
	// Expired means that the end has passed, or that no quorum has answered yet.
	// Another leader may exist.
	Expired = core.Expired
	// Margin means that less than MaxClockSkew is left: no reads, but renewal is
	// still possible.
	Margin = core.Margin
	// Valid means that a read may be served now.
	Valid = core.Valid
)

type (
	// PeerInfo is what a leader knows of another voter.
	PeerInfo = core.PeerInfo
	// PromiseInfo is what a node owes to a leader, and its restart hold.
	PromiseInfo = core.PromiseInfo

	// Clock is a lease clock, for those who bring their own. Package clock has
	// those of the platforms.
	Clock = clock.Clock
	// Disruptable is a Clock that tells when its machine was migrated or restored.
	Disruptable = clock.Disruptable
	// ClockInfo says what a Clock is, and what it is known to count.
	ClockInfo = clock.Info
	// Instant is a reading of a Clock.
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
