package raftwal

import (
	"errors"
	"fmt"

	"github.com/leaderlease/go/raftwal/fs"
)

// ErrCorrupt is what a CorruptError matches.
var ErrCorrupt = errors.New("raftwal: the log is damaged")

// CorruptError says where the log is damaged in a way that no crash leaves
// behind. The log refuses to open: what it has lost may have been promised to
// others.
type CorruptError struct {
	// File and Offset are the place of the first thing that cannot be right.
	File   string
	Offset int64
	// Reason is what is wrong with it.
	Reason string
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("raftwal: %s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// ErrFailed is what a FailedError matches.
var ErrFailed = errors.New("raftwal: the log has failed")

// FailedError is returned by every write after one whose outcome is unknown: a
// failed sync, or a write that failed for another reason than a full disk. What
// is durable is known when the log has been opened again, so the process should
// end.
type FailedError struct {
	// Cause is the first failure.
	Cause error
}

// Error implements error.
func (e *FailedError) Error() string { return "raftwal: the log has failed: " + e.Cause.Error() }

// Is makes errors.Is(err, ErrFailed) true.
func (e *FailedError) Is(target error) bool { return target == ErrFailed }

// Unwrap returns the cause.
func (e *FailedError) Unwrap() error { return e.Cause }

// ErrNoSpace is what a NoSpaceError matches.
var ErrNoSpace = errors.New("raftwal: the disk is full")

// NoSpaceError is returned by a write that found no room. Nothing of it is
// visible, the log can be read, and a later write succeeds when there is room
// again.
type NoSpaceError struct {
	// Cause is what the file system says.
	Cause error
}

// Error implements error.
func (e *NoSpaceError) Error() string { return "raftwal: the disk is full: " + e.Cause.Error() }

// Is makes errors.Is(err, ErrNoSpace) true.
func (e *NoSpaceError) Is(target error) bool { return target == ErrNoSpace }

// Unwrap returns the cause.
func (e *NoSpaceError) Unwrap() error { return e.Cause }

var (
	// ErrClosed is returned by everything after Close.
	ErrClosed = errors.New("raftwal: closed")
	// ErrReadOnly is returned by writes to a log that was opened for reading.
	ErrReadOnly = errors.New("raftwal: opened for reading")
	// ErrLocked is returned by Open if another process has the log open.
	ErrLocked = fs.ErrLocked
	// ErrEmpty is returned for a directory that holds no log by those who only
	// read.
	ErrEmpty = errors.New("raftwal: no log in this directory")
	// ErrGap is returned by Save for entries that do not continue the log or
	// each other.
	ErrGap = errors.New("raftwal: entries do not continue the log")
	// ErrCommitBeyondLog is returned by Save and SaveCommit for what would leave a
	// commit index beyond the last entry: a committed entry would be lost, or a
	// snapshot is older than what is committed. raft does not start from such a log.
	ErrCommitBeyondLog = errors.New("raftwal: the commit index is beyond the log")
	// ErrTooLarge is returned by Save for what a batch cannot hold.
	ErrTooLarge = errors.New("raftwal: too large for one batch")
	// ErrNotCheckpointed is returned by Compact for an index beyond the last
	// snapshot: without those entries the state could not be restored.
	ErrNotCheckpointed = errors.New("raftwal: not covered by a snapshot")
)

var errTooShort = errors.New("a record has the wrong length")
