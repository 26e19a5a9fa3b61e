package leaderlease

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

// Status says whether a lease read may be served, and if not, why. The zero value refuses. Refusals
// are ordered from the strongest to the weakest: of two reasons the smaller one counts. But until the
// next Tick, StatusDiskStalled may hide a new clock fault, and StatusExpired and StatusMargin may hide a
// new disruption of the clock.
type Status = core.Status

// The values of a Status, from the strongest refusal to none.
const (
	// StatusNone is the zero value: nothing is known, so nothing is served.
	StatusNone = core.None
	// StatusClosed means that the lease was closed and will never serve again.
	StatusClosed = core.Closed
	// StatusDisabled means that leases are off: by configuration, because of a misuse, or because
	// the *Lease is nil.
	StatusDisabled = core.Disabled
	// StatusRestartHold means that a node that does not lead is in its restart hold: it may neither vote
	// nor campaign yet.
	StatusRestartHold = core.RestartHold
	// StatusNotLeader means that another node leads, or none.
	StatusNotLeader = core.NotLeader
	// StatusNotVoter means that the leader is no voter of its own configuration.
	StatusNotVoter = core.NotVoter
	// StatusNoOwnTermCommit means that the leader has not committed an entry of its own term, so its
	// commit index may be behind.
	StatusNoOwnTermCommit = core.NoOwnTermCommit
	// StatusConfPending means that a configuration change is committed, and ApplyConfState was not
	// called for it yet.
	StatusConfPending = core.ConfPending
	// StatusTransferring means that leadership is being transferred.
	StatusTransferring = core.Transferring
	// StatusClockFault means that the clock failed, went backwards or was disrupted, and no quorum
	// has answered since; or that the clocks of too many voters run outside the configured bound.
	StatusClockFault = core.ClockFault
	// StatusDiskStalled means that SetDiskStalled reported a stalled disk.
	StatusDiskStalled = core.DiskStalled
	// StatusExpired means that the lease has ended, or that no quorum has answered yet. Another
	// leader may exist, as with StatusMargin.
	StatusExpired = core.Expired
	// StatusMargin means that at most MaxClockSkew is left: no reads, but a renewal is possible.
	StatusMargin = core.Margin
	// StatusValid means that a read may be served now.
	StatusValid = core.Valid
)

type (
	// PeerInfo describes another voter as its leader sees it.
	PeerInfo = core.PeerInfo
	// PromiseInfo describes the promise of a node to a leader, and its restart hold.
	PromiseInfo = core.PromiseInfo

	// Instant is a reading of a clock.Clock.
	Instant = core.Instant
	// ProcessID identifies one process of one member, for embedders that call ProcessDied, and is not the
	// operating system's process ID. The zero value means unknown.
	//
	// An ID is random, or the hash of a random value. Peers see it, so it must not be enough to report the
	// death. kvnode's IDs are hashes of secrets that only the parent of the process holds, and a report
	// reveals the secret.
	//
	// If you call ProcessDied, give each process a new ID. Do not use the operating system's process ID: it
	// is 1 in every container. Keep the sender's ID per connection, not per peer. A mistake here lets two
	// leaders have valid leases at the same time.
	ProcessID = core.ProcessID
)

// ErrNoLease is matched, with errors.Is, by every *NoLeaseError, which has the reason. The error of a read
// after the end of its context matches the context's error instead.
var ErrNoLease = errors.New("leaderlease: no usable lease")

// ErrLeaderTooOld is the cause of the *NoLeaseError of ReadIndex on a follower if the leader does not
// confirm that it made a quorum round. Such a leader runs a version of this library that answers from
// its lease. Read at the leader instead.
var ErrLeaderTooOld = errors.New("leaderlease: the leader runs a version that may have answered from its lease, without a quorum round")

// errNoLibrary is the error of a nil *Lease.
var errNoLibrary = &NoLeaseError{Status: core.Disabled}

// errBound is the cause of the error of CanCampaign if a promise binds this node.
var errBound = errors.New("a promise to a leader binds this node: it must not campaign before the promise ends")

// NoLeaseError says why a lease could not be used, or that it was lost. A read with this error has had no
// effect and may be tried again, here or at Leader. Context returns it if there is no lease. As the cause
// of a context it means that the lease was lost. Do returns it in both cases, so its work may have begun.
type NoLeaseError struct {
	// Term is the newest term this node knows.
	Term uint64
	// Leader is the node that leads Term as far as this node knows, or 0.
	Leader uint64
	// Status is the strongest reason to refuse.
	Status Status
	// RetryAfter is how long until the answer of this node may change: the rest of a restart hold or
	// of a promise, else the time between two heartbeats. 0 means: retry at Leader, if
	// there is one, or the lease is closed or disabled.
	RetryAfter time.Duration
	// Err is the cause, such as a misuse of the Lease, or nil.
	Err error

	// noReady is set if Ready was not called yet, so that no leader is known.
	noReady bool
}

// Error implements error.
func (e *NoLeaseError) Error() string {
	s := fmt.Sprintf("leaderlease: no usable lease: %s (term %d, leader %x)", e.Status, e.Term, e.Leader)
	if e.noReady {
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

// MisuseError says that the embedding broke a rule on which the lease depends. Leases stay off until
// the Lease is made anew, or until the correction that Text names.
type MisuseError struct{ Text string }

// Error implements error.
func (e *MisuseError) Error() string { return "leaderlease: misuse: " + e.Text }
