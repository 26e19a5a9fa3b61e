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
