package leaderlease

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

// ErrNoLease is matched, with errors.Is, by every error that says that a read
// could not be served or that work may not go on. *NoLeaseError says why.
var ErrNoLease = errors.New("leaderlease: no usable lease")

// ErrLeaderTooOld is the cause of the *NoLeaseError that a read by a quorum round (ReadIndex)
// fails with on a follower whose leader does not confirm that it made the round. Such a leader
// runs a version of this library that answers from its lease. Read at the leader instead.
var ErrLeaderTooOld = errors.New("leaderlease: the leader runs a version that may have answered from its lease, without a quorum round")

// errNoLibrary is what a nil *Lease answers.
var errNoLibrary = &NoLeaseError{Status: core.Disabled}

// NoLeaseError says why a lease could not be used. The request has had no
// effect and may be tried again, here or at Leader.
type NoLeaseError struct {
	// Term is the newest term this node knows.
	Term uint64
	// Leader is the node that leads Term as far as this node knows, or 0.
	Leader uint64
	// Status is the strongest reason to refuse.
	Status Status
	// RetryAfter is a hint for whoever asks again here: how long until the answer
	// may be another. It is what is left of a restart hold or of a promise, else the
	// time between two heartbeats. 0 means that waiting does not help: ask at Leader,
	// or the status is final.
	RetryAfter time.Duration
	// Err is the cause where there is one, such as a misuse of the Lease.
	Err error

	// blind: Ready was not called yet, so no leader is known, whatever raft does.
	blind bool
}

// Error implements error.
func (e *NoLeaseError) Error() string {
	s := fmt.Sprintf("leaderlease: no usable lease: %s (term %d, leader %d)", e.Status, e.Term, e.Leader)
	if e.blind {
		s += ": Ready was not called yet"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports that every NoLeaseError is an ErrNoLease.
func (e *NoLeaseError) Is(target error) bool { return target == ErrNoLease }

// Unwrap returns the cause, if any.
func (e *NoLeaseError) Unwrap() error { return e.Err }

// MisuseError says that the embedding broke a rule on which the lease depends.
// Leases stay off until the Lease is made anew, or until what Rule asks for is done.
type MisuseError struct{ Rule string }

// Error implements error.
func (e *MisuseError) Error() string { return "leaderlease: misuse: " + e.Rule }

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
