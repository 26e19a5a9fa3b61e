package etcdapi

import (
	"context"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/requests"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// requestBounds are the buckets of etcd's etcd_server_request_duration_seconds.
var requestBounds = durations.Doubling(time.Millisecond, 14)

// requestStats counts requests and their durations. The counters of all requests are striped, because
// reads under the lease are counted, too.
type requestStats struct {
	took [requests.NumOps][2]*durations.Striped // failed, succeeded
	// ranges counts the ranges of read-only transactions and of streams, txns the
	// read-only transactions with more than one range.
	ranges, txns *durations.Counter
	slow         atomic.Uint64
	warnLimit    rate.Sometimes
}

func (t *requestStats) init() {
	for op := range t.took {
		t.took[op] = [2]*durations.Striped{durations.NewStriped(requestBounds), durations.NewStriped(requestBounds)}
	}
	t.ranges, t.txns = durations.NewCounter(), durations.NewCounter()
	t.warnLimit = rate.Sometimes{First: 10, Interval: time.Second}
}

// recordRequest counts a finished request, and logs it if it was slow.
func (a *API) recordRequest(ctx context.Context, method string, req, resp any, err error, took time.Duration) {
	op := opOf(req)
	if op != requests.Unknown {
		i := 0
		if err == nil {
			i = 1
		}
		a.stats.took[op][i].Note(took)
	}
	reads := op == requests.Range || op == requests.ReadTxn
	if reads && took > a.cfg.WarnRead {
		a.stats.slow.Add(1)
	}
	if took <= a.cfg.WarnRequest && (!reads || took <= a.cfg.WarnRead) {
		return
	}
	a.stats.warnLimit.Do(func() { a.warnSlow(ctx, method, req, resp, err, took, reads) })
}

// warnSlow logs a slow request, with its keys shortened and without values.
func (a *API) warnSlow(ctx context.Context, method string, req, resp any, err error, took time.Duration, reads bool) {
	what, expected := "request took too long", a.cfg.WarnRequest
	if took <= expected {
		expected = a.cfg.WarnRead
	}
	if reads {
		what = "read-only request took too long"
	}
	remote := ""
	if p, ok := peer.FromContext(ctx); ok {
		remote = p.Addr.String()
	}
	a.cfg.Logger.Warn(what, "took", took, "expected-duration", expected, "method", method, "remote", remote,
		"request", requests.Describe(req), "request-size", sizeOf(req), "response-count", countOf(resp), "response-size", sizeOf(resp), "error", err)
}

func sizeOf(m any) int {
	if p, ok := m.(proto.Message); ok {
		return proto.Size(p)
	}
	return 0
}

// countOf returns the number of keys in a response, if the response has one.
func countOf(resp any) int64 {
	switch r := resp.(type) {
	case *pb.RangeResponse:
		return int64(len(r.GetKvs()))
	case *pb.DeleteRangeResponse:
		return r.GetDeleted()
	default:
		return 0
	}
}

// opOf returns the operation of a request.
func opOf(req any) requests.Op {
	if t, ok := req.(*pb.TxnRequest); ok && store.ReadOnly(t) {
		return requests.ReadTxn
	}
	return requests.Of(req)
}

// RequestStats counts the requests of this member's clients since its start.
type RequestStats struct {
	// Times are the durations of requests by operation.
	Times []kvnode.OpTimes
	// Slow counts the reads that took longer than Config.WarnRead.
	Slow uint64
	// Ranges counts range requests, failed ones included, and the ranges of read-only transactions and of
	// RangeStream. Txns counts read-only transactions with more than one range.
	Ranges, Txns uint64
}

// RequestStats returns the current counts.
func (a *API) RequestStats() RequestStats {
	t := &a.stats
	s := RequestStats{Slow: t.slow.Load(), Ranges: t.ranges.Load(), Txns: t.txns.Load()}
	for op := range t.took {
		for i, h := range t.took[op] {
			c := h.Load()
			if c.Count == 0 {
				continue
			}
			s.Times = append(s.Times, kvnode.OpTimes{Op: requests.Op(op).String(), Success: i == 1, Counts: c})
			if requests.Op(op) == requests.Range {
				s.Ranges += c.Count
			}
		}
	}
	return s
}
