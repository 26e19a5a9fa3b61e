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

// Engine counts time while its member leads. Renew and TimeLeft may be called by
// any goroutine, Changed by the one that applies.
type Engine struct {
	cfg   Config // immutable
	stats counters
	// logLimit limits what is logged of TTL leases, of which there may be thousands.
	logLimit rate.Sometimes

	// reign is nil while this member does not lead.
	current atomic.Pointer[leadership]
}

// New returns an Engine. It does nothing before Run.
func New(cfg Config) *Engine {
	cfg = cfg.WithDefaults()
	cfg.Logger = cfg.Logger.With("component", "ttl")
	return &Engine{cfg: cfg, logLimit: rate.Sometimes{First: 10, Interval: 10 * time.Second}}
}

// Run counts time whenever this member leads, until stop is closed. When it
// returns nothing of it is left running.
func (e *Engine) Run(stop <-chan struct{}) {
	for {
		term, over := e.cfg.Member.Reign()
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

// lead returns when the reign is over.
func (e *Engine) lead(term uint64, over, stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	r := newLeadership(ctx, e, term)
	// From here on r hears of changes; what was there before is adopted.
	e.current.Store(r)
	r.workers.Go(func() {
		select {
		case <-over:
		case <-stop:
		}
		// Everything stops at once, whatever it waits for.
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

// Changed tells the engine that l was granted, or, with a TTL of 0, is gone. The
// store calls it, in the order of the log, once it is so.
func (e *Engine) Changed(l store.TTLLease) {
	if r := e.current.Load(); r != nil {
		r.changed(l)
	}
}

// ErrNotLeader means that this member does not lead, or ceased to.
var ErrNotLeader = errors.New("ttl: not the leader")

// Member is what an Engine needs of the member it runs on.
type Member interface {
	// Reign returns the term in which this member leads, 0 if it does not, and a
	// channel that is closed when that is over.
	Reign() (term uint64, over <-chan struct{})
	// Standing says whether the leader lease holds now, and if not, why. It does
	// not wait.
	Standing() core.Status
	// Confirm returns nil once it is certain that this member led in term at some
	// moment during the call, and the store has applied what was committed by then.
	Confirm(ctx context.Context, term uint64) error
	// ProposeFenced replicates r, and has it dropped in any term but this one. The TTL
	// leases in it are those of the grants (store.Command), in its order; nil: whichever
	// have the IDs.
	ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest, grants []uint64) (store.Result, error)
}

// Store is what an Engine needs of the store.
type Store interface {
	// TTLLease is called under a lock that Engine.Changed takes: it must not wait for
	// who applies.
	TTLLease(id int64) (store.TTLLease, bool)
	TTLLeases() []store.TTLLease
	// Format is the cluster's. It never sinks, and what was granted before it rose has
	// been told to Engine.Changed before it is seen here.
	Format() int64
}

// Config configures an Engine. Member, Store and Clock are required.
type Config struct {
	Member Member
	Store  Store
	// Clock is the leader lease's, which counts time in which the machine sleeps.
	// While it cannot be read nothing expires.
	Clock clock.Clock
	// Interval is the time between ticks. Default: 100 ms. Longer: TTL leases are
	// revoked later.
	Interval time.Duration
	// MaxGap is how far apart two ticks may come and count. Default: 500 ms.
	// Longer: a pause as long costs clients that much of a TTL. Shorter: a busy
	// machine counts no time at all.
	MaxGap time.Duration
	// Grace is the served time after an interruption in which nothing is revoked.
	// Default: 1.5 s. Shorter: clients whose leader has died lose TTL leases that they would
	// have renewed. Longer: those of dead clients outlive each change of leaders.
	Grace time.Duration
	// Rate bounds the revocations per second. Default: 1,000, as in etcd. More:
	// a crowd that expires at once holds up writes.
	Rate int
	// Checkpoint is how often what is left of a TTL lease longer than that is
	// written to the log, so that a new leader need not begin anew. Default: never,
	// as in etcd. It waits for store.FormatGrants.
	Checkpoint time.Duration
	// Logger receives a line for revocations that fail. Default: none.
	Logger *slog.Logger
}

// WithDefaults returns a copy of c with every unset optional field filled in.
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
	// maxRevoking bounds the revocations under way.
	maxRevoking = 128
	// retryPause is between two tries to revoke, as in etcd.
	retryPause = 3 * time.Second
	// maxBatch bounds the TTL leases of one checkpoint, as in etcd.
	maxBatch = 1000
	// minTTLHalves is how many halves of an election timeout a TTL must last.
	minTTLHalves = 3
)

// MinTTL returns the shortest TTL in seconds that makes sense with an election
// timeout of that many ticks, as etcd computes it: one that a change of the
// leader may outlast is of no use.
func MinTTL(electionTicks int, tick time.Duration) int64 {
	shortest := time.Duration(minTTLHalves*electionTicks/2) * tick
	return int64((shortest + time.Second - 1) / time.Second)
}

// Stats counts since the start. Only a member that leads counts.
type Stats struct {
	// Leading says whether this member counts time now.
	Leading bool
	// Active is the number of TTL leases whose time it counts, Revoking of those
	// the number whose time is over.
	Active, Revoking int
	// Renewals are keep-alives that were answered, Expirations revocations for want
	// of them, and Checkpoints the times that what is left of a TTL lease was
	// written to the log.
	Renewals, Expirations, Checkpoints uint64
}

type counters struct{ renewals, expirations, checkpoints atomic.Uint64 }

// Stats returns the figures as of now.
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
