package ttl

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/time/rate"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// Engine counts time while its member leads. Renew and TimeLeft are safe for concurrent use. The
// applying goroutine calls Changed.
type Engine struct {
	cfg   Config // immutable
	stats counters
	// logLimit limits log lines about single TTL leases, of which there may be thousands.
	logLimit rate.Sometimes

	// current is nil while this member does not lead.
	current atomic.Pointer[leadership]
}

// New returns an Engine. It does nothing before Run.
func New(cfg Config) *Engine {
	cfg = cfg.WithDefaults()
	cfg.Logger = cfg.Logger.With("component", "ttl")
	return &Engine{cfg: cfg, logLimit: rate.Sometimes{First: 10, Interval: 10 * time.Second}}
}

// Run counts time while this member leads, until stop is closed. When it returns, all goroutines of
// the engine have ended.
func (e *Engine) Run(stop <-chan struct{}) {
	for {
		term, over := e.cfg.Member.Leadership()
		if term != 0 {
			e.lead(term, over, stop)
		}
		select {
		case <-over:
		case <-stop:
			return
		}
	}
}

// lead returns when the member no longer leads in term.
func (e *Engine) lead(term uint64, over, stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	r := newLeadership(ctx, e, term)
	// Stored before adopt reads the store, so that no change is missed.
	e.current.Store(r)
	r.workers.Go(func() {
		select {
		case <-over:
		case <-stop:
		}
		// Ends all waits and proposals of this term.
		e.current.Store(nil)
		cancel()
	})
	if !r.waitApplied() {
		r.workers.Wait()
		return
	}
	r.adopt()
	ticker := time.NewTicker(e.cfg.Interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		r.tick()
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	r.workers.Wait()
}

// Changed implements store.Config.TTLEvents. The store calls it in the order of the log, after each
// change.
func (e *Engine) Changed(l store.TTLLease) {
	if r := e.current.Load(); r != nil {
		r.changed(l)
	}
}

// ErrNotLeader means that this member does not lead, or has lost leadership during the call.
var ErrNotLeader = errors.New("ttl: not the leader")

// Member is the raft member, as far as an Engine uses it.
type Member interface {
	// Leadership returns the term in which this member leads, 0 if it does not, and a channel that
	// is closed when that changes.
	Leadership() (term uint64, over <-chan struct{})
	// LeaseStatus returns the status of the leader lease. It does not block.
	LeaseStatus() core.Status
	// Confirm returns nil if this member led in term at some moment during the call, and the store has applied
	// everything that was committed by that moment.
	Confirm(ctx context.Context, term uint64) error
	// ProposeFenced replicates r. The store drops it in any other term. generations has the generations of the TTL
	// leases in r, in the same order (store.Command.Generations). If it is nil, r applies to any lease with the ID.
	ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest, generations []uint64) (store.Result, error)
}

// Store is the part of *store.Store that an Engine uses.
type Store interface {
	// TTLLease is called under a lock that Changed takes, so it must not wait for the applying
	// goroutine.
	TTLLease(id int64) (store.TTLLease, bool)
	TTLLeases() []store.TTLLease
	// ClusterVersion returns the cluster version. It never decreases. Changed has been called for all
	// leases that were granted before the cluster version rose.
	ClusterVersion() int64
}

// Config configures an Engine. Member, Store and Clock are required.
type Config struct {
	Member Member
	Store  Store
	// Clock is the clock of the leader lease. It must count the time in which the machine sleeps. While it cannot be
	// read, nothing expires.
	Clock clock.Clock
	// Interval is the time between ticks. It delays revocations. Default: 100 ms.
	Interval time.Duration
	// MaxGap is the longest time between two ticks that counts as served. In a pause of that length a client cannot
	// renew its lease, and loses as much of its TTL. If MaxGap is too short, a busy machine counts no time at all.
	// Default: 500 ms.
	MaxGap time.Duration
	// Grace is the served time after an interruption in which nothing is revoked. If it is too
	// short, clients lose leases that they would have renewed after a change of the leader. It
	// extends the leases of dead clients after each change. Default: 1.5 s.
	Grace time.Duration
	// Rate limits the revocations per second, so that many expiring leases do not delay writes.
	// Default: 1,000, as in etcd.
	Rate int
	// Checkpoint is the interval at which the remaining time of longer TTL leases is written to
	// the log, so that a new leader continues from it. It needs store.ClusterVersionGenerations. Default:
	// never, as in etcd.
	Checkpoint time.Duration
	// Logger gets a line for failed proposals. Default: none.
	Logger *slog.Logger
}

// WithDefaults returns a copy of c with defaults for all optional fields that are not set.
func (c Config) WithDefaults() Config {
	orDefault(&c.Interval, 100*time.Millisecond)
	orDefault(&c.MaxGap, 500*time.Millisecond)
	orDefault(&c.Grace, 1500*time.Millisecond)
	orDefault(&c.Rate, 1000)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

const (
	// maxRevoking limits concurrent revocations.
	maxRevoking = 128
	// retryPause is the time between two attempts to revoke a lease, as in etcd.
	retryPause = 3 * time.Second
	// maxBatch limits the TTL leases of one lease checkpoint, as in etcd.
	maxBatch = 1000
	// minTTLHalves is the shortest TTL in halves of the election timeout.
	minTTLHalves = 3
)

// MinTTL returns the shortest useful TTL in seconds for an election timeout of that many ticks, as
// in etcd. A shorter TTL could expire during a change of the leader.
func MinTTL(electionTicks int, tick time.Duration) int64 {
	shortest := time.Duration(minTTLHalves*electionTicks/2) * tick
	return int64((shortest + time.Second - 1) / time.Second)
}

// Stats counts events since the start. Only a leader has such events.
type Stats struct {
	// Leading reports whether this member counts time now.
	Leading bool
	// Active is the number of TTL leases of which it counts the time, and Revoking the number of those that it is
	// revoking.
	Active, Revoking int
	// Renewals counts answered keep-alives, Expirations revocations of expired leases, and
	// Checkpoints the remaining times written to the log.
	Renewals, Expirations, Checkpoints uint64
}

type counters struct{ renewals, expirations, checkpoints atomic.Uint64 }

// Stats returns the current numbers.
func (e *Engine) Stats() Stats {
	s := Stats{
		Renewals: e.stats.renewals.Load(), Expirations: e.stats.expirations.Load(), Checkpoints: e.stats.checkpoints.Load(),
	}
	if r := e.current.Load(); r != nil {
		r.mu.Lock()
		s.Leading, s.Active, s.Revoking = true, len(r.mu.leases), len(r.slots)
		r.mu.Unlock()
	}
	return s
}
