package autocompact

import (
	"context"
	"errors"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Member is the member that compacts.
type Member interface {
	// LeadingTerm returns the term in which the member leads, 0 if it does not.
	LeadingTerm() uint64
	// ProposeFenced replicates r unless another leader comes first.
	ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest) (store.Result, error)
}

// Revisions is a store.
type Revisions interface {
	// Revision returns the newest revision.
	Revision() int64
}

// Config configures Run. Policy, Member and Revisions are required.
type Config struct {
	Policy    Policy
	Member    Member
	Revisions Revisions
	// Logger receives a line for each compaction. Default: none.
	Logger *slog.Logger
}

// Run compacts until ctx ends. It returns at once if the policy is to keep
// everything.
func Run(ctx context.Context, cfg Config) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Logger = cfg.Logger.With("component", "autocompact")
	switch p := cfg.Policy; {
	case p.Period > 0:
		cfg.runPeriodic(ctx)
	case p.Revisions > 0:
		cfg.runByRevision(ctx)
	}
}

// revisionInterval is how often revisions are counted.
const revisionInterval = 5 * time.Minute

func (c *Config) runByRevision(ctx context.Context) {
	var done int64
	for sleep(ctx, revisionInterval) == nil {
		rev := c.Revisions.Revision() - c.Policy.Revisions
		if rev <= 0 || rev == done {
			continue
		}
		if c.compact(ctx, rev) {
			done = rev
		}
	}
}

// maxInterval bounds the time between two compactions of a long period.
const maxInterval = time.Hour

// samples is how many revisions are noted in an interval.
const samples = 10

func (c *Config) runPeriodic(ctx context.Context) {
	interval := min(c.Policy.Period, maxInterval)
	apart := interval / samples
	seen := window{size: int(c.Policy.Period/apart) + 1}
	var done int64
	last, wait := time.Now(), c.Policy.Period // at first until a whole period was seen
	for {
		seen.add(c.Revisions.Revision())
		if sleep(ctx, apart) != nil {
			return
		}
		rev := seen.oldest()
		if time.Since(last) < wait || rev == done {
			continue
		}
		if c.compact(ctx, rev) {
			done, last, wait = rev, time.Now(), interval
		}
	}
}

// compact reports whether the history up to rev is compacted now. A member that
// does not lead compacts nothing.
func (c *Config) compact(ctx context.Context, rev int64) bool {
	term := c.Member.LeadingTerm()
	if term == 0 {
		return false
	}
	r, err := c.Member.ProposeFenced(ctx, term, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: rev}})
	if err == nil {
		err = r.Err
	}
	switch {
	case err == nil:
		c.Logger.Info("compacted", "revision", rev)
		return true
	case errors.Is(err, rpctypes.ErrGRPCCompacted):
		return true // by somebody else
	case ctx.Err() == nil:
		c.Logger.Warn("not compacted", "revision", rev, "error", err)
	}
	return false
}

// sleep returns nil after d, or ctx's cause as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
