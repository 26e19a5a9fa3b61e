// Package autocompact compacts the history of a store by itself, in the two modes of etcd's
// auto-compaction.
//
// # What it promises
//
// Every member runs it and remembers revisions, and only the one that leads
// proposes: fenced by its term, so that a member that has been deposed meanwhile
// compacts nothing. A new leader has the memory already. Nothing younger than the
// policy says is compacted, by this member's clock, which needs to be right about
// durations only roughly: compaction frees room and decides nothing else.
//
// # How often
//
// By revisions: every five minutes. By time: a revision is noted each tenth of the
// period, or of an hour if that is less; once a whole period has been seen, it
// compacts every period, or every hour if that is less, to what was the newest
// revision a period and one note before.
package autocompact

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
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

// Modes of Parse, etcd's own.
const (
	Periodic = "periodic"
	Revision = "revision"
)

// Policy says how much history compaction leaves. At most one field is set; with
// neither nothing is compacted.
type Policy struct {
	// Period is for how long a revision can be read after it was replaced.
	Period time.Duration
	// Revisions is how many revisions before the newest can be read.
	Revisions int64
}

// minPeriod keeps the tenth of a period, which is how often revisions are looked
// at, a time that means something.
const minPeriod = 10 * time.Millisecond

// Parse understands retention as etcd does: in mode revision a number of revisions,
// in mode periodic a duration with its unit, or a number of hours. 0 means no
// compaction.
func Parse(mode, retention string) (Policy, error) {
	n, err := strconv.ParseInt(retention, 10, 64)
	isNumber := err == nil && n >= 0
	switch mode {
	case Revision:
		if !isNumber {
			return Policy{}, fmt.Errorf("retention %q must be a number of revisions, 0 or more, in mode %s", retention, mode)
		}
		return Policy{Revisions: n}, nil
	case Periodic:
	default:
		return Policy{}, fmt.Errorf("mode %q must be %s or %s", mode, Periodic, Revision)
	}
	const maxHours = int64(1<<63-1) / int64(time.Hour)
	if isNumber {
		if n > maxHours {
			return Policy{}, fmt.Errorf("retention of %d hours must be %d hours at most", n, maxHours)
		}
		return Policy{Period: time.Duration(n) * time.Hour}, nil
	}
	d, err := time.ParseDuration(retention)
	if err != nil || d < 0 || d > 0 && d < minPeriod {
		return Policy{}, fmt.Errorf("retention %q must be 0, a number of hours, or a duration of %v at least with its unit, such as 30m, in mode %s", retention, minPeriod, mode)
	}
	return Policy{Period: d}, nil
}

// Enabled reports whether anything is ever compacted.
func (p Policy) Enabled() bool { return p != Policy{} }

// window holds the last size numbers.
type window struct {
	size  int
	all   []int64
	first int
}

// add forgets the oldest number once the window is full.
func (w *window) add(n int64) {
	if len(w.all) < w.size {
		w.all = append(w.all, n)
		return
	}
	w.all[w.first] = n
	w.first = (w.first + 1) % w.size
}

func (w *window) oldest() int64 { return w.all[w.first] }
