package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// Values of Config.AutoCompactionMode.
const (
	CompactPeriodic = "periodic"
	CompactRevision = "revision"
)

// autoCompactor compacts the history of the store, in the two modes of etcd's auto-compaction.
//
// Every member runs it and records revisions, so a new leader has them at once. Only the leader
// proposes compactions, fenced with its term, so a deposed leader compacts nothing. The member's
// clock only needs to measure durations roughly.
//
// In revision mode it compacts every five minutes. In periodic mode an interval is the period, or one hour if the
// period is longer. It records the newest revision ten times in each interval. After one full period it compacts once
// in each interval, to the revision that was recorded at least one period before.
type autoCompactor struct {
	retention retention
	member    compactingMember
	revision  func() int64 // the newest one
	log       *slog.Logger
}

// compactingMember is the part of *kvnode.Node that an autoCompactor uses.
type compactingMember interface {
	// LeadingTerm returns the term in which the member leads, 0 if it does not.
	LeadingTerm() uint64
	// ProposeFenced replicates r. The store drops it in any other term.
	ProposeFenced(ctx context.Context, term uint64, r *pb.InternalRaftRequest) (store.Result, error)
}

// autoCompact compacts the store as configured until the server ends.
func (s *Server) autoCompact() {
	keep, err := parseRetention(s.cfg.AutoCompactionMode, s.cfg.AutoCompactionRetention)
	if err != nil {
		return // cannot happen: Validate rejects it
	}
	c := &autoCompactor{keep, s.node, s.node.Store().Revision, s.cfg.named().With("component", "autocompact")}
	c.run(s.ending)
}

// run compacts until ctx ends. It returns at once if the whole history is kept.
func (c *autoCompactor) run(ctx context.Context) {
	switch {
	case c.retention.period > 0:
		c.runPeriodic(ctx)
	case c.retention.revisions > 0:
		c.runByRevision(ctx)
	}
}

// revisionInterval is the time between two compactions in revision mode.
const revisionInterval = 5 * time.Minute

func (c *autoCompactor) runByRevision(ctx context.Context) {
	var done int64
	for durations.Sleep(ctx, revisionInterval) == nil {
		rev := c.revision() - c.retention.revisions
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

func (c *autoCompactor) runPeriodic(ctx context.Context) {
	interval := min(c.retention.period, maxInterval)
	apart := interval / samples
	seen := window{size: int(c.retention.period/apart) + 1}
	var done int64
	last, wait := time.Now(), c.retention.period // the first compaction comes after a full period
	for {
		seen.add(c.revision())
		if durations.Sleep(ctx, apart) != nil {
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
func (c *autoCompactor) compact(ctx context.Context, rev int64) bool {
	term := c.member.LeadingTerm()
	if term == 0 {
		return false
	}
	r, err := c.member.ProposeFenced(ctx, term, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: rev}})
	if err == nil {
		err = r.Err
	}
	switch {
	case err == nil:
		c.log.Info("compacted", "revision", rev)
		return true
	case errors.Is(err, rpctypes.ErrGRPCCompacted):
		return true // by a client
	case ctx.Err() == nil:
		c.log.Warn("cannot compact", "revision", rev, "error", err)
	}
	return false
}

// retention says how much history a compaction keeps. At most one field is set. Without one, nothing
// is compacted.
type retention struct {
	period    time.Duration // how long a superseded revision stays readable
	revisions int64         // how many revisions before the newest one stay readable
}

// minPeriod keeps the recording interval, a tenth of the period, above the resolution of timers.
const minPeriod = 10 * time.Millisecond

// parseRetention parses Config.AutoCompactionRetention as etcd does: a number of revisions in revision
// mode; a duration, or a number of hours, in periodic mode. 0 disables compaction.
func parseRetention(mode, value string) (retention, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	isNumber := err == nil && n >= 0
	switch mode {
	case CompactRevision:
		if !isNumber {
			return retention{}, fmt.Errorf("retention %q must be a number of revisions, 0 or more, in mode %s", value, mode)
		}
		return retention{revisions: n}, nil
	case CompactPeriodic:
	default:
		return retention{}, fmt.Errorf("mode %q must be %s or %s", mode, CompactPeriodic, CompactRevision)
	}
	const maxHours = int64(1<<63-1) / int64(time.Hour)
	if isNumber {
		if n > maxHours {
			return retention{}, fmt.Errorf("retention of %d hours must be %d hours at most", n, maxHours)
		}
		return retention{period: time.Duration(n) * time.Hour}, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > 0 && d < minPeriod {
		return retention{}, fmt.Errorf("retention %q must be 0, a number of hours, or a duration of %v at least with its unit, such as 30m, in mode %s", value, minPeriod, mode)
	}
	return retention{period: d}, nil
}

// window holds the last size numbers.
type window struct {
	size   int
	all    []int64
	eldest int // the index of the oldest number
}

// add adds a number, and drops the oldest one if the window is full.
func (w *window) add(n int64) {
	if len(w.all) < w.size {
		w.all = append(w.all, n)
		return
	}
	w.all[w.eldest] = n
	w.eldest = (w.eldest + 1) % w.size
}

func (w *window) oldest() int64 { return w.all[w.eldest] }
