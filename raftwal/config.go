package raftwal

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/leaderlease/go/internal/problems"
	"github.com/leaderlease/go/raftwal/fs"
)

// Config configures a Log. Dir or FS is required.
type Config struct {
	// Dir is the directory of the log. Open makes it if it is missing. It must not
	// have other files.
	Dir string
	// FS replaces the operating system's directory Dir. Default: fs.OS(Dir).
	FS fs.FS

	// SegmentSize is the size of a segment's file in bytes. Default: 64 MiB. Each new
	// segment, and each freed one, costs a sync of the directory. Compaction frees whole
	// segments. The disk must have room for at least two, or compaction cannot free space
	// on a full disk.
	SegmentSize int64
	// MaxRecentBytes limits the size of the entries in memory, as raft counts bytes. Slow
	// followers and the applier read older entries from the disk. Default: 16 MiB.
	// Negative means none.
	MaxRecentBytes int64
	// MaxBatchBytes limits one batch. Save refuses more. Default: 256 MiB.
	MaxBatchBytes int64
	// MaxSnapshotBytes limits the data of a snapshot in the log, which each segment
	// repeats. Default: 1 MiB. Store larger states elsewhere, and leave Data empty.
	MaxSnapshotBytes int64
	// MaxSpares is the number of freed segments that are kept for reuse. If none is left,
	// a new one is filled with zeros in the background while the log fills the second half
	// of its last segment. Default: 2. Negative means none: a write fills its new segment.
	MaxSpares int
	// Inline fills new segments with zeros within the write that needs them. Tests use it
	// for a deterministic order of operations.
	Inline bool

	// Nonce returns the nonce of a new segment. Two calls must not return the
	// same. Default: crypto/rand.
	Nonce func() uint64
	// Logger gets the warnings of Open. Default: nothing is logged.
	Logger *slog.Logger
}

const (
	defaultSegmentSize      = 64 << 20
	defaultMaxRecentBytes   = 16 << 20
	defaultMaxBatchBytes    = 256 << 20
	defaultMaxSnapshotBytes = 1 << 20
	defaultMaxSpares        = 2

	minSegmentSize = 4 << 10
	maxSegmentSize = 1 << 31 // offsets in the index are 32 bits
)

// WithDefaults returns a copy of c with every unset optional field filled in.
func (c Config) WithDefaults() Config {
	c.SegmentSize = cmp.Or(c.SegmentSize, defaultSegmentSize)
	c.MaxRecentBytes = cmp.Or(c.MaxRecentBytes, defaultMaxRecentBytes)
	c.MaxBatchBytes = cmp.Or(c.MaxBatchBytes, defaultMaxBatchBytes)
	c.MaxSnapshotBytes = cmp.Or(c.MaxSnapshotBytes, defaultMaxSnapshotBytes)
	c.MaxSpares = cmp.Or(c.MaxSpares, defaultMaxSpares)
	if c.Nonce == nil {
		c.Nonce = randomNonce
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports all errors of c. Call it after WithDefaults.
func (c Config) Validate() error {
	var bad problems.List
	bad.If(c.Dir == "" && c.FS == nil, "no directory: set Dir or FS")
	bad.If(c.SegmentSize < minSegmentSize || c.SegmentSize > maxSegmentSize || c.SegmentSize%headerSize != 0,
		"segment size %d must be a multiple of %d from %d to %d", c.SegmentSize, headerSize, minSegmentSize, int64(maxSegmentSize))
	bad.If(c.MaxBatchBytes < minSegmentSize || c.MaxBatchBytes > maxSegmentSize/2,
		"max batch of %d bytes must be from %d to %d", c.MaxBatchBytes, minSegmentSize, maxSegmentSize/2)
	bad.If(c.MaxSnapshotBytes < 0 || c.MaxSnapshotBytes > c.MaxBatchBytes/2,
		"max snapshot of %d bytes must be from 0 to half a batch, %d", c.MaxSnapshotBytes, c.MaxBatchBytes/2)
	bad.If(c.Nonce == nil, "no nonce")
	if len(bad) > 0 {
		return fmt.Errorf("raftwal: invalid config: %w", errors.Join(bad...))
	}
	return nil
}

func randomNonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it ends the program rather than fail
	return binary.LittleEndian.Uint64(b[:])
}
