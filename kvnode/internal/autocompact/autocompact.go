// Package autocompact compacts the history of a store automatically, in the two modes of etcd's
// auto-compaction.
//
// Every member runs it and records revisions, so a new leader has them at once. Only the leader
// proposes compactions, fenced with its term, so a deposed leader compacts nothing. The member's
// clock only needs to measure durations roughly.
//
// In revision mode it compacts every five minutes. In periodic mode it records a revision each
// tenth of the period, or each tenth of an hour for longer periods. After one full period it
// compacts every period, at most once an hour, to the revision that was the newest one period and
// one recording before.
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

// Member is the part of a member that Run uses.
type Member interface {
	// LeadingTerm returns the term in which the member leads, 0 if it does not.
	LeadingTerm() uint64
	// ProposeFenced replicates r. The store drops it in any other term.
	ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest) (store.Result, error)
}

// Revisions is the part of *store.Store that Run uses.
type Revisions interface {
	// Revision returns the newest revision.
	Revision() int64
}

// Config configures Run. Policy, Member and Revisions are required.
type Config struct {
	Policy    Policy
	Member    Member
	Revisions Revisions
	// Logger gets a line for each compaction. Default: none.
	Logger *slog.Logger
}

// Run compacts until ctx ends. It returns at once if the policy is not enabled.
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

// revisionInterval is the time between two compactions in revision mode.
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

// maxInterval is the longest time between two compactions in periodic mode.
const maxInterval = time.Hour

// samples is how many revisions are recorded per interval.
const samples = 10

func (c *Config) runPeriodic(ctx context.Context) {
	interval := min(c.Policy.Period, maxInterval)
	apart := interval / samples
	seen := window{size: int(c.Policy.Period/apart) + 1}
	var done int64
	last, wait := time.Now(), c.Policy.Period // the first compaction comes after a full period
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

// compact reports whether the history up to rev is compacted. It does nothing if the member does
// not lead.
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
		return true // by a client
	case ctx.Err() == nil:
		c.Logger.Warn("cannot compact", "revision", rev, "error", err)
	}
	return false
}

// sleep returns nil after d, or the cause of ctx when ctx ends first.
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

// The modes of Parse, named as in etcd.
const (
	Periodic = "periodic"
	Revision = "revision"
)

// Policy says how much history a compaction keeps. At most one field is set. Without one, nothing
// is compacted.
type Policy struct {
	// Period is how long a revision stays readable after it was replaced.
	Period time.Duration
	// Revisions is how many revisions before the newest one stay readable.
	Revisions int64
}

// minPeriod keeps the recording interval, a tenth of the period, above the resolution of timers.
const minPeriod = 10 * time.Millisecond

// Parse parses a retention as etcd does: a number of revisions in revision mode; a duration, or a
// number of hours, in periodic mode. 0 disables compaction.
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

// Enabled reports whether anything is compacted.
func (p Policy) Enabled() bool { return p != Policy{} }

// window holds the last size numbers.
type window struct {
	size  int
	all   []int64
	first int
}

// add adds a number, and drops the oldest one if the window is full.
func (w *window) add(n int64) {
	if len(w.all) < w.size {
		w.all = append(w.all, n)
		return
	}
	w.all[w.first] = n
	w.first = (w.first + 1) % w.size
}

func (w *window) oldest() int64 { return w.all[w.first] }
