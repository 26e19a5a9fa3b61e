package raftwal

import (
	"errors"
	"fmt"

	"github.com/leaderlease/go/raftwal/fs"
)

// ErrCorrupt matches every CorruptError.
var ErrCorrupt = errors.New("raftwal: the log is damaged")

// CorruptError reports damage that no crash causes. Open refuses such a log, because
// the node may have acknowledged what was lost.
type CorruptError struct {
	// File and Offset are the place of the first invalid bytes.
	File   string
	Offset int64
	// Reason describes the damage.
	Reason string
}

// Error returns the place and the reason.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("raftwal: %s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// ErrFailed matches every FailedError.
var ErrFailed = errors.New("raftwal: the log has failed")

// FailedError is returned by every write after one with an unknown result: a failed
// sync, or a write that failed for another reason than a full disk. The next Open
// decides how much of it is durable, so the process should exit.
type FailedError struct {
	// Cause is the first failure.
	Cause error
}

// Error returns the cause.
func (e *FailedError) Error() string { return "raftwal: the log has failed: " + e.Cause.Error() }

// Is makes errors.Is(err, ErrFailed) true.
func (e *FailedError) Is(target error) bool { return target == ErrFailed }

// Unwrap returns the cause.
func (e *FailedError) Unwrap() error { return e.Cause }

// ErrNoSpace matches every NoSpaceError.
var ErrNoSpace = errors.New("raftwal: the disk is full")

// NoSpaceError is returned by a write that found no space. Readers see nothing of it. A
// later write succeeds once there is space.
type NoSpaceError struct {
	// Cause is the error of the file system.
	Cause error
}

// Error returns the cause.
func (e *NoSpaceError) Error() string { return "raftwal: the disk is full: " + e.Cause.Error() }

// Is makes errors.Is(err, ErrNoSpace) true.
func (e *NoSpaceError) Is(target error) bool { return target == ErrNoSpace }

// Unwrap returns the cause.
func (e *NoSpaceError) Unwrap() error { return e.Cause }

var (
	// ErrClosed is returned by all methods after Close.
	ErrClosed = errors.New("raftwal: closed")
	// ErrReadOnly is returned by writes after OpenReadOnly.
	ErrReadOnly = errors.New("raftwal: opened for reading")
	// ErrLocked is returned by Open if another process has the log open.
	ErrLocked = fs.ErrLocked
	// ErrEmpty is returned by OpenReadOnly, Verify and Dump for a directory without a log.
	ErrEmpty = errors.New("raftwal: no log in this directory")
	// ErrGap is returned by Save for entries that do not continue the log or each other.
	ErrGap = errors.New("raftwal: entries do not continue the log")
	// ErrCommitBeyondLog is returned by writes that would leave the commit index beyond
	// the last entry, by removing a committed entry or with an old snapshot. raft does
	// not start from such a log.
	ErrCommitBeyondLog = errors.New("raftwal: the commit index is beyond the log")
	// ErrTooLarge is returned by Save for more than MaxBatchBytes.
	ErrTooLarge = errors.New("raftwal: too large for one batch")
	// ErrNotCheckpointed is returned by Compact for an index beyond the last snapshot: the
	// state could not be restored without those entries.
	ErrNotCheckpointed = errors.New("raftwal: not covered by a snapshot")
)

var errTooShort = errors.New("a record has the wrong length")
