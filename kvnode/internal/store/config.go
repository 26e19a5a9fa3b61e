package store

import (
	"log/slog"
)

// Config says where a store is kept.
type Config struct {
	// Backend keeps checkpoints; Open of package boltdb returns the real one.
	Backend Backend
	// Events is given the writes of each revision, in order, by the goroutine
	// that applies, once the revision is visible. They carry the previous
	// version if there was one, and are shared: it must not change them. It must
	// not block. A Restore skips revisions and gives no events. Optional.
	Events func(revision int64, writes []Write)
	// Restored is told the newest revision after a Restore, by its goroutine,
	// once that is visible: the events up to it were not given. It must not
	// block. Optional.
	Restored func(revision int64)
	// TTLEvents is told of each TTL lease that is granted, and, with a TTL of 0, of
	// each that is gone, by the goroutine that applies. It must not block, nor call
	// anything but the TTL methods of the store. A Restore gives no events.
	// Optional.
	TTLEvents func(l TTLLease)
	// CutBytes is how much one commit of a checkpoint writes, about. Default: 4 MiB.
	CutBytes int64
	// Logger receives a line for each restore and defragmentation. Default: none.
	Logger *slog.Logger
}
