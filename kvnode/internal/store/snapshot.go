package store

import (
	"fmt"
)

// Snapshot is a consistent copy of a checkpoint, for as long as it is open.
type Snapshot interface {
	Checkpoint() Checkpoint
	// Size is what WriteTo writes.
	Size() int64
	// WriteTo writes a file for Restore.
	WriteTo(w Writer) (int64, error)
	Close() error
}

type snapshot struct {
	Image
	at Checkpoint
}

func (s *snapshot) Checkpoint() Checkpoint { return s.at }

// OpenSnapshot opens the newest checkpoint for reading. Checkpoints, writes and
// reads go on meanwhile. It must be closed: as long as it is open, the database
// cannot use the space again that it gives up.
func (s *Store) OpenSnapshot() (Snapshot, error) {
	// Not ordered by s.saving: a checkpoint under way must not hold it up.
	if s.closed() {
		return nil, ErrClosed
	}
	img, err := s.backend.View()
	if err != nil {
		return nil, fmt.Errorf("store: open snapshot: %w", err)
	}
	c, err := imageCheckpoint(img)
	if err != nil {
		_ = img.Close() // The other error says more.
		return nil, fmt.Errorf("store: open snapshot: %w", err)
	}
	return &snapshot{img, c}, nil
}

// ReadCheckpoint returns what a snapshot is of. It reads its description only:
// Restore finds damage in the rest. It returns ErrNoCheckpoint if it is of nothing.
func ReadCheckpoint(img Image) (Checkpoint, error) {
	c, err := imageCheckpoint(img)
	if err == nil && c.Index == 0 {
		err = ErrNoCheckpoint
	}
	return c, err
}

func imageCheckpoint(img Image) (Checkpoint, error) {
	m, err := decodeMeta(img.Meta())
	if err != nil {
		return Checkpoint{}, err
	}
	return m.checkpoint()
}
