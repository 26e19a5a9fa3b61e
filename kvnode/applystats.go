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

// applyBounds are the bounds of etcd's etcd_server_apply_duration_seconds.
var applyBounds = durations.Doubling(100*time.Microsecond, 20)

// limitedLog allows the first three log lines, and then one in 10 s.
func limitedLog() rate.Sometimes { return rate.Sometimes{First: 3, Interval: 10 * time.Second} }

// OpTimes is how long an operation took each time.
type OpTimes struct {
	// Op is the name of the operation in etcd's metrics.
	Op      string
	Success bool
	durations.Counts
}

// ApplyTimes returns how long the entries of the log took to be applied since the start, by operation, and how
// many took longer than Config.WarnApply.
func (n *Node) ApplyTimes() (all []OpTimes, slow uint64) { return n.applier.times.load() }

// applyTimes measures how long entries take to be applied. The applier notes; any goroutine loads.
type applyTimes struct {
	limit  time.Duration // Config.WarnApply
	log    *slog.Logger
	warned rate.Sometimes
	took   [requests.NumOps][2]*durations.Histogram // failed, succeeded
	slow   atomic.Uint64
}

func newApplyTimes(limit time.Duration, log *slog.Logger) *applyTimes {
	t := &applyTimes{limit: limit, log: log, warned: limitedLog()}
	for op := range t.took {
		for i := range t.took[op] {
			t.took[op][i] = durations.New(applyBounds)
		}
	}
	return t
}

// note counts an entry. It logs a slow one, because entries are applied one after the other, and reads wait for
// them. The log lines are limited, so that a slow disk does not fill another one.
func (t *applyTimes) note(r *store.Result, index uint64, took time.Duration) {
	if r.Command == nil || r.Command.Request == nil && r.Command.Register == nil {
		return // a command without effect
	}
	op, what := requests.MemberAttributes, proto.Message(nil)
	if r.Command.Request != nil {
		op, what = requests.Applied(r.Command.Request)
	}
	t.took[op][success(r.Err)].Note(took)
	if took <= t.limit {
		return
	}
	t.slow.Add(1)
	t.warned.Do(func() {
		t.log.Warn("apply request took too long", "took", took, "expected-duration", t.limit, "op", op.String(),
			"request", requests.Describe(what), "request-size", proto.Size(what), "response-size", proto.Size(r.Response), "index", index, "error", r.Err)
	})
}

// success is 1 unless err is a failure. As in etcd, the compaction of a compacted revision is no failure.
func success(err error) int {
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

// invalidEntries counts entries, and peers' proposals, that no member of this version writes. The state is
// sound, as they have no effect on any member, so there is no alarm that stops clients.
type invalidEntries struct {
	log    *slog.Logger
	logged rate.Sometimes
	count  atomic.Uint64
}

// report counts an entry and logs it, within limits.
func (i *invalidEntries) report(err error, args ...any) {
	i.count.Add(1)
	i.logged.Do(func() {
		i.log.Error("an entry that does not decode has no effect: is a peer faulty, or not one?", append(args, "error", err)...)
	})
}
