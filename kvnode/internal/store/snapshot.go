package store

import (
	"context"
	"fmt"
	"io"
)

// Snapshot is a consistent copy of a checkpoint. It stays readable until it is closed.
type Snapshot interface {
	Checkpoint() Checkpoint
	// Size returns the number of bytes that WriteTo writes.
	Size() int64
	// WriteTo writes a file for Restore.
	WriteTo(w io.Writer) (int64, error)
	Close() error
}

type snapshot struct {
	Image
	at Checkpoint
}

func (s *snapshot) Checkpoint() Checkpoint { return s.at }

// OpenSnapshot opens the newest checkpoint for reading. Checkpoints, writes and reads continue
// meanwhile. While the snapshot is open, the database cannot reuse space that it has freed, so it
// must be closed.
func (s *Store) OpenSnapshot() (Snapshot, error) {
	// Without s.saving, so that a running checkpoint does not delay it.
	if s.closed() {
		return nil, ErrClosed
	}
	img, err := s.backend.View()
	if err != nil {
		return nil, fmt.Errorf("store: open snapshot: %w", err)
	}
	c, err := imageCheckpoint(img)
	if err != nil {
		_ = img.Close() // the other error says more
		return nil, fmt.Errorf("store: open snapshot: %w", err)
	}
	return &snapshot{img, c}, nil
}

// ReadCheckpoint returns the checkpoint of a snapshot from its meta value. It does not look at the
// records. It returns ErrNoCheckpoint for an empty snapshot.
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

// Restore replaces the whole state by the snapshot in the file at path, which it moves into place. It returns
// when the new state is durable; until then, and if it fails, readers see the old state. The
// applying goroutine calls it. It waits for a running checkpoint. The file must be on the
// database's file system.
//
// Restore refuses a damaged file, and leaves it. If the file cannot be moved into place, the store makes
// no more checkpoints, because the next Open may find either state.
func (s *Store) Restore(path string) error {
	s.saving.acquire()
	defer s.saving.release()
	if s.closed() {
		return ErrClosed
	}
	st, c, err := s.install(path)
	if err != nil {
		return fmt.Errorf("store: restore %s: %w", path, err)
	}
	// The new state is durable. Apply loads the state under mu.
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

// Defragment releases unused space of the database. Reads and Apply continue. It waits for a
// running checkpoint until ctx ends. An open snapshot keeps the old file until it is closed.
func (s *Store) Defragment(ctx context.Context) error {
	if err := s.saving.acquireContext(ctx); err != nil {
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

// Summary describes a snapshot file.
type Summary struct {
	Checkpoint
	// Hash is HashKV of the newest revision.
	Hash Hash
	// Keys counts the keys at the newest revision, Versions all versions including tombstones.
	Keys, Versions, TTLLeases int
}

// Inspect reads and checks a whole snapshot. It returns ErrNoCheckpoint for an empty one.
func Inspect(img Image) (Summary, error) {
	st, c, err := loadImage(img)
	if err != nil {
		return Summary{}, err
	}
	if c.Index == 0 {
		return Summary{}, ErrNoCheckpoint
	}
	compacted := st.compacted.Load()
	s := Summary{
		Checkpoint: c, TTLLeases: len(st.leases.all),
		Hash: Hash{CompactRevision: compacted, HashRevision: c.Revision, Revision: c.Revision},
	}
	w := st.view()
	if s.Hash.Hash, err = w.hash(compacted); err != nil {
		return Summary{}, err
	}
	_, err = w.scanChains(context.Background(), nil, nil, func(of *chain) bool {
		if of.head.Load().live() != nil {
			s.Keys++
		}
		for v := of.head.Load(); v != nil; v = v.prev.Load() {
			s.Versions++
		}
		return true
	})
	return s, err
}
