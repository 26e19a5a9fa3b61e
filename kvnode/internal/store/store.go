package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Store is the replicated state machine of one member.
//
// One goroutine applies entries; any goroutine reads.
type Store struct {
	backend Backend
	// The callbacks may be nil.
	events      func(revision int64, writes []Write)
	restored    func(revision int64)
	ttlEvents   func(TTLLease)
	log         *slog.Logger
	commitBytes int64

	// state is replaced as a whole by Restore.
	state atomic.Pointer[state]
	// ops is written under the apply lock.
	ops ops
	// durable is the newest checkpoint, never nil.
	durable atomic.Pointer[Checkpoint]

	// saving serializes checkpoints, Restore, Defragment, Close and the freeing of versions. A goroutine
	// that holds mu never waits for saving, so Apply, which takes mu, never waits for the disk.
	saving semaphore
	// updateFailed is set after a failed update of the backend: the data that the backend shows
	// may then be in the page cache only. Guarded by saving.
	updateFailed bool

	mu struct {
		sync.Mutex // the apply lock
		trimming   bool
		closed     bool
	}
	trimmer sync.WaitGroup
}

// Open loads the newest checkpoint of cfg.Backend into memory. The store owns the backend and
// closes it. If Open fails, the caller keeps the backend.
func Open(cfg Config) (*Store, error) {
	if cfg.Backend == nil {
		return nil, fmt.Errorf("store: invalid config: Backend is required")
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("component", "store")
	// raft's log drops entries that this checkpoint covers, so the checkpoint must be durable.
	if err := cfg.Backend.EnsureDurable(); err != nil {
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

// Result is the outcome of one entry.
type Result struct {
	// ID is the ID of the proposal, 0 if the entry has none. ID and Command are not set with ErrStale and
	// ErrMalformed.
	ID uint64
	// Command is the decoded entry.
	Command *Command
	// Response is the etcd response. Only the revision of its header is set. It is nil for
	// commands without a request, and with an error.
	Response proto.Message
	// Err is an rpctypes.ErrGRPC… value, since clients recognise errors by their text, or an
	// error of this package.
	Err error
}

// Applied returns the index of the newest visible entry.
func (s *Store) Applied() uint64 { return s.state.Load().applied.Load() }

// Revision returns the newest visible revision. It is 1 before the first write.
func (s *Store) Revision() int64 { return s.state.Load().revision.Load() }

// CompactRevision returns the newest compacted revision, -1 before the first compaction, as in
// etcd. Reads at that revision are still served.
func (s *Store) CompactRevision() int64 { return s.state.Load().compacted.Load() }

// Get returns the newest version of key, nil if the key does not exist, and the revision of the
// read. The version is shared and must not be changed. Get takes no lock and allocates nothing.
func (s *Store) Get(key []byte) (v *Version, revision int64) {
	st := s.state.Load()
	for {
		w := st.view()
		if v := w.find(key); v != nil {
			return v, w.rev
		}
		// A version that was found is the right one, since the oldest versions are freed
		// first. A missing one may have been freed.
		if !w.compacted() {
			return nil, w.rev
		}
	}
}

// Alarms returns the active alarms, sorted. The list is shared and must not be changed.
func (s *Store) Alarms() []*pb.AlarmMember { return *s.state.Load().alarms.Load() }

// AlarmRaised reports whether an alarm of this kind is active for a member.
func (s *Store) AlarmRaised(kind pb.AlarmType, member uint64) bool {
	return slices.ContainsFunc(s.Alarms(), func(m *pb.AlarmMember) bool { return m.GetAlarm() == kind && m.GetMemberID() == member })
}

// Members returns the registry of members. It is shared and must not be changed.
func (s *Store) Members() *Members { return s.state.Load().members.Load() }

// Size returns the size of the database, and how many bytes of it are in use.
func (s *Store) Size() (total, inUse int64) { return s.backend.Size() }

// UnsavedBytes estimates by how many bytes the next checkpoint enlarges the database. It counts writes
// since the last checkpoint, and does not subtract freed versions. It takes no lock.
func (s *Store) UnsavedBytes() int64 { return s.state.Load().growth.Load() }

// Close closes the backend without a checkpoint. Reads from memory still work. An open snapshot
// keeps the database file, and its lock, until the snapshot is closed.
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

// Config configures Open.
type Config struct {
	// Backend keeps checkpoints. boltdb.Open returns the one for files.
	Backend Backend
	// Events receives the writes of each revision in order, from the applying goroutine, after
	// the revision is visible. Each write has its previous version, if there is one. Writes are
	// shared and must not be changed. Events must not block. It is not called for the
	// revisions that a Restore adds. Optional.
	Events func(revision int64, writes []Write)
	// Restored receives the newest revision after a Restore, from the goroutine of Restore,
	// when the state is visible. It must not block. Optional.
	Restored func(revision int64)
	// TTLEvents receives each granted TTL lease, and each one that ended, with a TTL of 0, from
	// the applying goroutine. It must not block, and may call only the TTL methods of the
	// store. It is not called for what a Restore adds or ends. Optional.
	TTLEvents func(l TTLLease)
	// CommitBytes is the approximate size of one commit of a checkpoint. Default: 4 MiB.
	CommitBytes int64
	// Logger receives a line for each restore and defragmentation. Default: none.
	Logger *slog.Logger
}

// Results that etcd does not have. Like etcd's errors they are gRPC statuses. All members return the
// same one for an entry, except for ErrStale.
var (
	// ErrFenced means that the entry's term differs from the command's RequiredTerm:
	// another leader took over before the command was replicated.
	ErrFenced = status.Error(codes.Aborted, "kvnode: command requires another term than that of its entry: the leader has changed")
	// ErrUnimplemented means that the request is of a kind that this version does not know.
	ErrUnimplemented = status.Error(codes.Unimplemented, "kvnode: request is not implemented")
	// ErrMalformed means that the entry's data is not a command, or needs a newer cluster version.
	ErrMalformed = status.Error(codes.Internal, "kvnode: malformed command")
	// ErrInstance means that the member is registered with another data directory, so this
	// directory lacks votes and entries that the member acknowledged.
	ErrInstance = status.Error(codes.FailedPrecondition, "kvnode: member is registered with another data directory")
	// ErrNoGeneration means that a LeaseRevoke or LeaseCheckpoint with a RequiredTerm does not name the
	// generations of its leases. The proposing leader did not know the cluster version yet.
	ErrNoGeneration = status.Error(codes.Aborted, "kvnode: command names no generation of a TTL lease")
	// ErrStale means that the entry is applied already: its index is not above Applied.
	ErrStale = status.Error(codes.AlreadyExists, "kvnode: entry is applied already")
)

var (
	// ErrForeign means that a file is not a kvnode database or, from package etcdfile, not etcd's.
	ErrForeign = errors.New("store: not a kvnode database")
	// ErrFormat means that another version of this package wrote the database, in a format that
	// this version does not read.
	ErrFormat = errors.New("store: unknown database format")
	// ErrDamaged means that a database or a snapshot differs from the data that was written to
	// it.
	ErrDamaged = errors.New("store: database is damaged (if it is a member's, replace that member)")
	// ErrNoCheckpoint means that a snapshot contains no checkpoint.
	ErrNoCheckpoint = errors.New("store: no checkpoint")
	// ErrClosed means that the store is closed.
	ErrClosed = errors.New("store: closed")
)

// Ops counts the operations of applied entries as etcd does: each operation of a transaction
// counts, and so does each key of a revoked TTL lease.
type Ops struct {
	Ranges, Puts, Deletes uint64
	// Txns counts entries with two operations or more.
	Txns uint64
	// PutBytes is the size of all keys and values that were put.
	PutBytes uint64
}

// ops is Ops with atomic counters. One goroutine at a time writes it.
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

// Ops returns the counters since Open.
func (s *Store) Ops() Ops {
	return Ops{
		Ranges: s.ops.ranges.Load(), Puts: s.ops.puts.Load(), Deletes: s.ops.deletes.Load(),
		Txns: s.ops.txns.Load(), PutBytes: s.ops.putBytes.Load(),
	}
}

// semaphore is a mutex. acquireContext gives up when a context ends.
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
