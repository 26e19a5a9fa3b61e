package ttl

import (
	"context"
	"errors"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

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
