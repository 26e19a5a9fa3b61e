package kvnode

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode/internal/requests"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// applyBounds are the buckets of etcd's etcd_server_apply_duration_seconds.
var applyBounds = durations.Doubling(100*time.Microsecond, 20)

// newLogLimit allows the first three log lines, and then one in 10 s.
func newLogLimit() rate.Sometimes { return rate.Sometimes{First: 3, Interval: 10 * time.Second} }

// OpTimes is how long an operation took each time.
type OpTimes struct {
	// Op is the name of the operation in etcd's metrics.
	Op      string
	Success bool
	durations.Counts
}

// ApplyTimes returns how long this process took to apply entries, by operation, and how many of them took longer than
// Config.WarnApply.
func (n *Node) ApplyTimes() (all []OpTimes, slow uint64) { return n.applier.times.load() }

// applyTimes measures how long entries take to be applied. The applier notes; any goroutine loads.
type applyTimes struct {
	limit  time.Duration // Config.WarnApply
	log    *slog.Logger
	warned rate.Sometimes
	took   [requests.NumOps][2]*durations.Histogram // by operation and outcomeIndex
	slow   atomic.Uint64
}

func newApplyTimes(limit time.Duration, log *slog.Logger) *applyTimes {
	t := &applyTimes{limit: limit, log: log, warned: newLogLimit()}
	for op := range t.took {
		for i := range t.took[op] {
			t.took[op][i] = durations.New(applyBounds)
		}
	}
	return t
}

// note counts an entry, and logs a slow one: while it is applied, all later entries and the reads that follow them
// wait. The log lines are limited.
func (t *applyTimes) note(r *store.Result, index uint64, took time.Duration) {
	if r.Command == nil || r.Command.Request == nil && r.Command.Register == nil {
		return // a command without effect
	}
	op, what := requests.MemberAttributes, proto.Message(nil)
	if r.Command.Request != nil {
		op, what = requests.Applied(r.Command.Request)
	}
	t.took[op][outcomeIndex(r.Err)].Note(took)
	if took <= t.limit {
		return
	}
	t.slow.Add(1)
	t.warned.Do(func() {
		t.log.Warn("apply request took too long", "took", took, "expected-duration", t.limit, "op", op.String(),
			"request", requests.Describe(what), "request-size", proto.Size(what), "response-size", proto.Size(r.Response), "index", index, "error", r.Err)
	})
}

// outcomeIndex is 0 if err is a failure, and else 1. As in etcd, the compaction of a compacted revision is no
// failure.
func outcomeIndex(err error) int {
	if err == nil || errors.Is(err, rpctypes.ErrGRPCCompacted) {
		return 1
	}
	return 0
}

func (t *applyTimes) load() (all []OpTimes, slow uint64) {
	for op := range t.took {
		for i, h := range t.took[op] {
			if c := h.Load(); c.Count > 0 {
				all = append(all, OpTimes{requests.Op(op).String(), i == 1, c})
			}
		}
	}
	return all, t.slow.Load()
}

// invalidEntries counts entries, and proposals of peers, that no member of this version writes. They have no effect
// on any member, so no alarm is raised.
type invalidEntries struct {
	log    *slog.Logger
	logged rate.Sometimes
	count  atomic.Uint64
}

// report counts an entry and logs it. The log lines are limited.
func (i *invalidEntries) report(err error, args ...any) {
	i.count.Add(1)
	i.logged.Do(func() {
		i.log.Error("an invalid entry or proposal has no effect: a peer is faulty, or is no member", append(args, "error", err)...)
	})
}
