package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Store is the replicated state: what every member computes from the log.
//
// One goroutine applies; any goroutine reads.
type Store struct {
	backend  Backend
	events   func(revision int64, writes []Write)
	restored func(revision int64)
	// ttlEvents may be nil.
	ttlEvents   func(TTLLease)
	log         *slog.Logger
	commitBytes int64

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
	s := &Store{backend: cfg.Backend, events: cfg.Events, restored: cfg.Restored, ttlEvents: cfg.TTLEvents, log: log, commitBytes: cmp.Or(cfg.CommitBytes, commitBytes), saving: newSemaphore()}
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
	s.saving.acquire()
	defer s.saving.release()
	return s.backend.Close()
}

func (s *Store) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closed
}

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
	// CommitBytes is how much one commit of a checkpoint writes, about. Default: 4 MiB.
	CommitBytes int64
	// Logger receives a line for each restore and defragmentation. Default: none.
	Logger *slog.Logger
}

// Results that no etcd server gives. Like etcd's own they are gRPC statuses,
// and every member gives the same one for the same entry.
var (
	// ErrFenced says that a command was dropped because the entry's term is not
	// the one that it was meant for: another leader took over before it.
	ErrFenced = status.Error(codes.Aborted, "kvnode: command is of another term")
	// ErrUnimplemented says that an entry holds a kind of request that this
	// version does not know.
	ErrUnimplemented = status.Error(codes.Unimplemented, "kvnode: request is not implemented")
	// ErrMalformed says that an entry's data is not a command.
	ErrMalformed = status.Error(codes.Internal, "kvnode: malformed command")
	// ErrInstance says that a member has been in the cluster with another data
	// directory, and with it has lost what it promised.
	ErrInstance = status.Error(codes.FailedPrecondition, "kvnode: member has another data directory")
	// ErrNoGrant says that a LeaseRevoke or LeaseCheckpoint with a fence was dropped
	// because it does not say which grants it means: whoever proposed it did not know
	// the cluster's format yet.
	ErrNoGrant = status.Error(codes.Aborted, "kvnode: command names no grant of a TTL lease")
	// ErrStale says that an entry was dropped because its effect is there
	// already: its index is not above Applied.
	ErrStale = status.Error(codes.AlreadyExists, "kvnode: entry is applied already")
)

var (
	// ErrForeign says that a file is a database, or another thing, that was not
	// made by this package.
	ErrForeign = errors.New("store: not a kvnode database")
	// ErrFormat says that a database was made by another version of this
	// package, in a format that this one does not read.
	ErrFormat = errors.New("store: unknown database format")
	// ErrDamaged says that a database or a snapshot does not hold what was
	// written to it.
	ErrDamaged = errors.New("store: database is damaged")
	// ErrNoCheckpoint says that a snapshot is of a database without checkpoint.
	ErrNoCheckpoint = errors.New("store: no checkpoint")
	// ErrClosed says that the store is closed.
	ErrClosed = errors.New("store: closed")
)

// Ops counts what applied entries asked of the store, as etcd counts it: an operation of
// a transaction is one, and so is each key of a TTL lease that is revoked.
type Ops struct {
	Ranges, Puts, Deletes uint64
	// Txns counts what consisted of two of these or more.
	Txns uint64
	// PutBytes is the size of the keys and values that were put.
	PutBytes uint64
}

// ops is an Ops that one goroutine writes at a time.
type ops struct{ ranges, puts, deletes, txns, putBytes atomic.Uint64 }

func (o *ops) add(n *Ops) {
	if n.Ranges+n.Puts+n.Deletes > 1 {
		o.txns.Add(1)
	}
	o.ranges.Add(n.Ranges)
	o.puts.Add(n.Puts)
	o.deletes.Add(n.Deletes)
	o.putBytes.Add(n.PutBytes)
}

// Ops returns what was asked since Open.
func (s *Store) Ops() Ops {
	return Ops{
		Ranges: s.ops.ranges.Load(), Puts: s.ops.puts.Load(), Deletes: s.ops.deletes.Load(),
		Txns: s.ops.txns.Load(), PutBytes: s.ops.putBytes.Load(),
	}
}

// semaphore is a mutex that can be waited for until a context ends.
type semaphore chan struct{}

func newSemaphore() semaphore { return make(semaphore, 1) }

func (m semaphore) acquire() { m <- struct{}{} }

func (m semaphore) acquireContext(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m semaphore) release() { <-m }
