package store

import (
	"context"
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
	s.saving.acquire()
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

// Summary describes the snapshot in a file.
type Summary struct {
	Checkpoint
	// Hash is HashKV's of the newest revision.
	Hash Hash
	// Keys is the number of keys at the newest revision, Versions that of all
	// versions that are kept, tombstones included, and TTLLeases that of TTL leases.
	Keys, Versions, TTLLeases int
}

// Inspect reads all of a snapshot. It returns ErrNoCheckpoint if it is of nothing.
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
