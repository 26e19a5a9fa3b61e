package raftwal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/leaderlease/go/raftwal/fs"
)

// Config says where a log is and how it is kept. Dir or FS is required.
type Config struct {
	// Dir is the directory of the log. Open makes it if it is missing. Nothing
	// else may keep files in it.
	Dir string
	// FS replaces the operating system's directory Dir. Default: fs.OS(Dir).
	FS fs.FS

	// SegmentSize is the size of a segment's file in bytes. Default: 64 MiB.
	// Smaller: more often two more syncs. Larger: compaction frees space later,
	// and so much is written ahead of need. The disk needs room for two at least,
	// or compaction can free nothing when it is full.
	SegmentSize int64
	// MaxRecentBytes bounds the entries kept in memory, counted as raft counts
	// them. Default: 16 MiB. Smaller: followers that lag, and the applier, read
	// from the disk. Zero means the default, negative means none.
	MaxRecentBytes int64
	// MaxBatchBytes bounds one batch; Save refuses more. Default: 256 MiB.
	MaxBatchBytes int64
	// MaxSnapshotBytes bounds the data of a snapshot that is kept in the log,
	// where each segment repeats it. Default: 1 MiB. Keep larger states
	// elsewhere, and leave Data empty here.
	MaxSnapshotBytes int64
	// MaxSpares is how many segments are kept for further use after compaction.
	// Default: 2. Fewer: new ones are filled with zeros while the log is
	// written. More: disk space. Zero means the default, negative means none.
	MaxSpares int
	// Inline prepares new segments within the Save that needs them instead of in
	// the background. Tests want it, since then the order of operations depends
	// on the calls only.
	Inline bool

	// Nonce returns the nonce of a new segment. Two calls must not return the
	// same. Default: crypto/rand.
	Nonce func() uint64
	// Logger receives a line for each repair. Default: none.
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
	if c.SegmentSize == 0 {
		c.SegmentSize = defaultSegmentSize
	}
	if c.MaxRecentBytes == 0 {
		c.MaxRecentBytes = defaultMaxRecentBytes
	}
	if c.MaxBatchBytes == 0 {
		c.MaxBatchBytes = defaultMaxBatchBytes
	}
	if c.MaxSnapshotBytes == 0 {
		c.MaxSnapshotBytes = defaultMaxSnapshotBytes
	}
	if c.MaxSpares == 0 {
		c.MaxSpares = defaultMaxSpares
	}
	if c.Nonce == nil {
		c.Nonce = randomNonce
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports everything that is wrong with c, and changes nothing. It
// expects defaults to be filled in.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Dir == "" && c.FS == nil {
		bad("no directory")
	}
	if c.SegmentSize < minSegmentSize || c.SegmentSize > maxSegmentSize || c.SegmentSize%headerSize != 0 {
		bad("segment size %d must be a multiple of %d from %d to %d", c.SegmentSize, headerSize, minSegmentSize, int64(maxSegmentSize))
	}
	if c.MaxBatchBytes < minSegmentSize || c.MaxBatchBytes > maxSegmentSize/2 {
		bad("max batch of %d bytes must be from %d to %d", c.MaxBatchBytes, minSegmentSize, maxSegmentSize/2)
	}
	if c.MaxSnapshotBytes < 0 || c.MaxSnapshotBytes > c.MaxBatchBytes/2 {
		bad("max snapshot of %d bytes must be from 0 to half a batch, %d", c.MaxSnapshotBytes, c.MaxBatchBytes/2)
	}
	if c.Nonce == nil {
		bad("no nonce")
	}
	if len(errs) > 0 {
		return fmt.Errorf("raftwal: invalid config: %w", errors.Join(errs...))
	}
	return nil
}

func randomNonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it ends the program rather than fail
	return binary.LittleEndian.Uint64(b[:])
}
