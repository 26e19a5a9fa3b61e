package store

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Store is the replicated state: what every member computes from the log.
//
// One goroutine applies; any goroutine reads.
type Store struct {
	backend  Backend
	events   func(revision int64, writes []Write)
	restored func(revision int64)
	// ttlEvents may be nil.
	ttlEvents func(TTLLease)
	log       *slog.Logger
	cutBytes  int64

	// state is what readers see. Restore replaces it.
	state atomic.Pointer[state]
	// ops is written by whoever holds the apply lock.
	ops ops
	// durable is the newest checkpoint, never nil.
	durable atomic.Pointer[Checkpoint]

	// saving is held by whoever touches the backend or frees versions:
	// checkpoints, the trimmer, Restore, Defragment and Close exclude each other.
	// It is taken before mu.
	saving semaphore
	// unsettled means that the newest update of the backend has failed, so that
	// what it shows may be in memory only. Guarded by saving.
	unsettled bool

	mu struct {
		sync.Mutex // the apply lock
		trimming   bool
		closed     bool
	}
	trimmer sync.WaitGroup
}

// Open loads the newest checkpoint of cfg.Backend into memory. The store owns
// the backend from then on, and closes it; if Open fails, it stays the caller's.
func Open(cfg Config) (*Store, error) {
	if cfg.Backend == nil {
		return nil, fmt.Errorf("store: invalid config: backend is missing")
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("component", "store")
	// The log forgets what the checkpoint has, which must not vanish then.
	if err := cfg.Backend.Settle(); err != nil {
		return nil, fmt.Errorf("store: open: %w", err)
	}
	st, at, err := load(cfg.Backend)
	if err != nil {
		return nil, fmt.Errorf("store: open: %w", err)
	}
	s := &Store{backend: cfg.Backend, events: cfg.Events, restored: cfg.Restored, ttlEvents: cfg.TTLEvents, log: log, cutBytes: cmp.Or(cfg.CutBytes, cutBytes), saving: newSemaphore()}
	s.state.Store(st)
	s.durable.Store(&at)
	return s, nil
}

// Result is what became of one entry.
type Result struct {
	// ID is the proposal's, 0 for an entry that carries none.
	ID uint64
	// Command is what the entry asked for, nil if it does not decode.
	Command *Command
	// Response is the etcd response, its header filled with the revision only.
	// It is nil for commands without request, and with an error.
	Response proto.Message
	// Err is one of the api package's rpctypes.ErrGRPC… values, since clients
	// recognise errors by their text, or one of this package's own.
	Err error
}

// Applied returns the index of the newest entry whose effect is visible.
func (s *Store) Applied() uint64 { return s.state.Load().applied.Load() }

// Revision returns the newest revision that is visible. It is 1 before the first
// write.
func (s *Store) Revision() int64 { return s.state.Load().revision.Load() }

// CompactRevision returns the newest revision that was compacted, -1 before the
// first compaction, as in etcd. Reads as of it are still served.
func (s *Store) CompactRevision() int64 { return s.state.Load().compacted.Load() }

// Get returns the newest version of key, nil if there is none, and the revision
// as of which that is so. What it returns is shared and must not be changed. It
// takes no lock and allocates nothing.
func (s *Store) Get(key []byte) (v *Version, revision int64) {
	st := s.state.Load()
	for {
		w := st.view()
		if v := w.find(key); v != nil {
			return v, w.rev
		}
		// A version that is there is the right one, since the trimmer frees from
		// the old end. One that is missing may have been freed.
		if !w.compacted() {
			return nil, w.rev
		}
	}
}

// Alarms returns the alarms that are raised. They are shared and must not be
// changed.
func (s *Store) Alarms() []*pb.AlarmMember { return *s.state.Load().alarms.Load() }

// Members returns the registry of members. It is shared and must not be changed.
func (s *Store) Members() *Members { return s.state.Load().members.Load() }

// Size returns the size of the durable state, and how much of it is in use.
func (s *Store) Size() (total, inUse int64) { return s.backend.Size() }

// Unsaved estimates by how many bytes the next checkpoint makes the durable state
// grow: what was written since the last one, not less what was freed. It takes no
// lock.
func (s *Store) Unsaved() int64 { return s.state.Load().growth.Load() }

// Close closes the backend. It makes no checkpoint. Reads from memory go on. A
// snapshot that is open keeps the database's file, and its lock, until it is
// closed.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.mu.closed
	s.mu.closed = true
	s.mu.Unlock()
	s.trimmer.Wait()
	if closed {
		return nil
	}
	s.saving.take()
	defer s.saving.release()
	return s.backend.Close()
}

func (s *Store) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closed
}
