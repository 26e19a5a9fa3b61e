package raftwal

import (
	"errors"
	"fmt"

	"github.com/leaderlease/go/raftwal/fs"
)

// ErrCorrupt matches every CorruptError.
var ErrCorrupt = errors.New("raftwal: the log is damaged")

// CorruptError reports damage that no crash causes (see Torn). Open refuses such a log,
// because the node may have acknowledged what was lost. Entries returns it for an entry
// on disk that was damaged later.
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

// FailedError is returned by a write with an unknown result, and by every later write. A
// sync or a change of file names has failed, or a write for another reason than a full
// disk. The next Open finds out what is durable, so the process should exit.
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
// later write succeeds once there is space. A segment's space is allocated before its
// first use. So on a file system that overwrites in place, only a write that begins a new
// segment can fail.
//
// On a full disk these calls free a segment:
//
//	err = l.SaveCommit(index)         // then make the state at index durable
//	err = l.SaveSnapshot(checkpoint)  // as new as possible
//	err = l.Compact(checkpoint.index)
//
// The end of each segment, the reserve, is kept for them and for Flush: an eighth of the
// segment, but at least 1 KiB and at most 64 KiB. Hard states, promises and calls that free
// no segment may use a quarter of it. So neither elections nor repeated checkpoints can use
// up the rest. Flush and SaveCommit may use another eighth: a hundred calls in segments of
// 512 KiB or more, one in segments of 8 KiB or less. SaveSnapshot leaves room for Compact.
//
// This needs
//   - a log of at least two segments of Config.SegmentSize, since the last one stays and
//     the next one must fit into the space of the first;
//   - a file system that overwrites in place; and
//   - a snapshot that, with its data and configuration, fits into a third of the reserve.
//
// Elections, and SaveCommit without a later Compact, may use up their share of the reserve.
// So compact well before the disk is full.
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
	// ErrClosed is returned after Close by all methods with an error result.
	ErrClosed = errors.New("raftwal: closed")
	// ErrReadOnly is returned by writes after OpenReadOnly.
	ErrReadOnly = errors.New("raftwal: opened for reading")
	// ErrLocked is returned by Open and CheckLock if the log is already open.
	ErrLocked = fs.ErrLocked
	// ErrEmpty is returned by OpenReadOnly, Verify and Dump for a directory without a log.
	ErrEmpty = errors.New("raftwal: no log in this directory")
	// ErrGap is returned by Save for entries that do not continue the log or each other.
	ErrGap = errors.New("raftwal: entries do not continue the log")
	// ErrCommitBeyondLog is returned by a write that would leave the commit index beyond
	// the last entry: its commit index is too high, or it removes a committed entry. raft
	// does not start from such a log.
	ErrCommitBeyondLog = errors.New("raftwal: the commit index is beyond the log")
	// ErrTooLarge is returned for a batch above MaxBatchBytes or a snapshot above MaxSnapshotBytes.
	ErrTooLarge = errors.New("raftwal: too large for one batch")
	// ErrNotCheckpointed is returned by Compact for an index beyond the log's snapshot: the
	// state could not be restored without those entries.
	ErrNotCheckpointed = errors.New("raftwal: not covered by a snapshot")
)

var errWrongLength = errors.New("a record has the wrong length")
