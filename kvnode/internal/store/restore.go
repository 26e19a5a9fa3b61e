package store

import (
	"context"
	"fmt"
)

// Restore replaces everything by the snapshot in the file path, which it
// consumes. It returns when that is durable; until then, and if it fails,
// readers see the old state. It is called by the goroutine that applies, and
// waits for a checkpoint under way. The file must be on the file system of the
// database.
//
// A snapshot that is damaged, or is no snapshot, is refused and left where it
// is. If installing it fails, the store takes no more checkpoints: either state
// may be found by the next Open.
func (s *Store) Restore(path string) error {
	s.saving.take()
	defer s.saving.release()
	if s.closed() {
		return ErrClosed
	}
	st, c, err := s.install(path)
	if err != nil {
		return fmt.Errorf("store: restore %s: %w", path, err)
	}
	// It is on disk. A crash before Install left the old state and the file, one behind it leaves
	// the new state. Under mu, as the trimmer works on the state that it finds there.
	s.mu.Lock()
	s.durable.Store(&c)
	s.state.Store(st)
	s.mu.Unlock()
	if s.restored != nil {
		s.restored(c.Revision)
	}
	s.log.Info("restored a snapshot", "index", c.Index, "term", c.Term, "revision", c.Revision)
	return nil
}

func (s *Store) install(path string) (st *state, c Checkpoint, err error) {
	staged, err := s.backend.Stage(path)
	if err != nil {
		return nil, Checkpoint{}, err
	}
	defer func() {
		if cerr := staged.Close(); err == nil {
			err = cerr
		}
	}()
	st, c, err = loadImage(staged)
	if err == nil && c.Index == 0 {
		err = ErrNoCheckpoint
	}
	if err != nil {
		return nil, Checkpoint{}, err
	}
	return st, c, staged.Install()
}

// Defragment gives unused space of the durable state back. Reads and Apply go
// on; it waits for a checkpoint under way until ctx ends. A snapshot that is
// open keeps the old file until it is closed.
func (s *Store) Defragment(ctx context.Context) error {
	if err := s.saving.takeContext(ctx); err != nil {
		return fmt.Errorf("store: defragment: %w", err)
	}
	defer s.saving.release()
	if s.closed() {
		return ErrClosed
	}
	before, _ := s.Size()
	if err := s.backend.Defragment(); err != nil {
		return fmt.Errorf("store: defragment: %w", err)
	}
	after, _ := s.Size()
	s.log.Info("defragmented", "before", before, "after", after)
	return nil
}
