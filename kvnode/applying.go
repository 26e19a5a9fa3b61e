package kvnode

import (
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode/internal/requests"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// applyBounds are etcd's, of etcd_server_apply_duration_seconds.
var applyBounds = durations.Doubling(100*time.Microsecond, 20)

// applying counts how long entries take to be applied. The applier writes.
type applying struct {
	*parts
	took   [requests.NumOps][2]*durations.Histogram // failed, and not
	slow   atomic.Uint64
	warned rate.Sometimes
}

func (a *applying) init() {
	a.warned = rate.Sometimes{First: 3, Interval: 10 * time.Second}
	for op := range a.took {
		for i := range a.took[op] {
			a.took[op][i] = durations.New(applyBounds)
		}
	}
}

// count counts an entry, and logs one that has held up all others for too long: entries are
// applied one after the other, by one goroutine, and reads wait for what is applied. At most
// one line in 10 s after the first three, so that a slow disk does not fill another one.
func (a *applying) count(r *store.Result, index uint64, took time.Duration) {
	if r.Command == nil || r.Command.Request == nil && r.Command.Register == nil {
		return // nothing was asked for
	}
	op, what := requests.MemberAttributes, proto.Message(nil)
	if r.Command.Request != nil {
		op, what = requests.Applied(r.Command.Request)
	}
	a.took[op][success(r.Err)].Note(took)
	if took <= a.cfg.WarnApply {
		return
	}
	a.slow.Add(1)
	a.warned.Do(func() {
		a.log.Warn("apply request took too long", "took", took, "expected-duration", a.cfg.WarnApply, "op", op.String(),
			"request", requests.Describe(what), "request-size", proto.Size(what), "response-size", proto.Size(r.Response), "index", index, "error", r.Err)
	})
}

// success is 1 unless err is a failure. As in etcd, what was compacted is none.
func success(err error) int {
	if err == nil || errors.Is(err, rpctypes.ErrGRPCCompacted) {
		return 1
	}
	return 0
}

// OpTimes is how long an operation took each time.
type OpTimes struct {
	// Op is its name in etcd's metrics.
	Op      string
	Success bool
	durations.Counts
}

// ApplyTimes returns how long the entries of the log took to be applied since the start,
// by operation, and how many took longer than WarnApply.
func (a *applying) ApplyTimes() (all []OpTimes, slow uint64) {
	for op := range a.took {
		for i, h := range a.took[op] {
			if c := h.Load(); c.Count > 0 {
				all = append(all, OpTimes{requests.Op(op).String(), i == 1, c})
			}
		}
	}
	return all, a.slow.Load()
}
