package etcdapi

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/etcdapi/callmetrics"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/store"
)

var rangeAZ = &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")}

// beside serves another stream of r's member, with its own metadata and configuration.
func (r *fastRig) beside(cfg Config, pairs ...string) *fastRig {
	r.t.Helper()
	r2 := &fastRig{t: r.t, fakeNode: r.fakeNode, ctx: r.ctx, in: make(chan fastwire.Raw), out: make(chan fastwire.Raw), over: make(chan struct{})}
	r2.api = New(r.fakeNode, cfg)
	stream := &stoppable{fastRig: r2, ctx: metadata.NewIncomingContext(r.ctx, metadata.Pairs(pairs...))}
	go func() {
		defer close(r2.over)
		r2.ended = serveFast(&kvServer{API: r2.api}, stream)
	}()
	<-r2.out
	return r2
}

// hangRanges has reads wait, but for gets that are answered in place.
func hangRanges(ctx context.Context, mode kvnode.ReadMode) error {
	if _, ok := ctx.Deadline(); ok {
		return hang(ctx, mode)
	}
	return nil
}

// What is answered where it is received is refused as calls are, and counted as they are.
func TestInPlaceAsACall(t *testing.T) {
	onStream(t, func(r *fastRig) {
		metrics := callmetrics.New(false)
		r.leased.Store(true)
		r.onRead = hangRanges
		r2 := r.beside(Config{MaxInFlight: 1, Metrics: metrics}, "hasleader", "true")
		r2.in <- r.items(1, 50, "Range", getK)
		for i := range 50 {
			r2.want(uint64(1+i), codes.OK, "")
		}
		r2.in <- r.items(1, 1, "Range", rangeAZ)
		synctest.Wait()
		r2.in <- r.items(2, 2, "Range", getK)
		r2.want(2, codes.ResourceExhausted, "1 are under way, which is the limit")
		r2.want(3, codes.ResourceExhausted, "1 are under way, which is the limit")
		r2.want(1, codes.Unavailable, "request timed out")
		r.setLeader(0)
		r2.in <- r.items(4, 1, "Range", getK)
		r2.want(4, codes.Unavailable, status.Convert(rpctypes.ErrGRPCNoLeader).Message())
		r.setLeader(testMember)
		r2.api.node = brokenStore{r.fakeNode}
		r2.in <- r.items(5, 1, "Range", getK)
		r2.want(5, codes.Internal, "failed on an internal error")
		r2.api.node = r.fakeNode
		r2.in <- r.items(6, 1, "Range", getK)
		r2.want(6, codes.OK, "")
		synctest.Wait()

		const want = "OK 51, ResourceExhausted 2, Unavailable 2, Internal 1, started 56"
		if got := callsOf(t, metrics); got != want {
			t.Errorf("calls of Range: %s; want %s", got, want)
		}
		succeeded, failed := uint64(0), uint64(0)
		for _, op := range r2.api.RequestStats().Times {
			if op.Success {
				succeeded += op.Count
			} else {
				failed += op.Count
			}
		}
		if succeeded != 51 || failed != 5 {
			t.Errorf("%d requests are timed that succeeded and %d that did not, want 51 and 5", succeeded, failed)
		}
	})
}

// brokenStore is a member whose store cannot be read.
type brokenStore struct{ *fakeNode }

func (brokenStore) Store() *store.Store { panic("broken") }

// callsOf says what is counted of gets.
func callsOf(t *testing.T, metrics *callmetrics.Metrics) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "grpc_code" {
					n[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
			n[f.GetName()] += m.GetCounter().GetValue()
		}
	}
	return fmt.Sprintf("OK %v, ResourceExhausted %v, Unavailable %v, Internal %v, started %v",
		n["OK"], n["ResourceExhausted"], n["Unavailable"], n["Internal"], n["grpc_server_started_total"])
}

// Answers are sent while who receives waits for room, and that wait is not the time of the get
// that comes next.
func TestInPlaceBeforeWhatWaits(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.leased.Store(true)
		r.onRead = hangRanges
		message := r.items(1, 10, "Range", getK)
		const many = aloneItems + 100
		message = append(message, r.items(100, many, "Range", rangeAZ)...)
		begun := time.Now()
		r.in <- message
		for i := range 10 {
			r.want(uint64(1+i), codes.OK, "")
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("a get had to wait for %v behind ranges that take as long", took)
		}
		ended := func(n int) {
			for range n {
				if a := r.next(); (a.ID == 11) != (a.Code == 0) {
					t.Fatalf("answer to %d: %v %s", a.ID, codes.Code(a.Code), a.Text)
				}
			}
		}
		ended(many)
		r.in <- r.items(100, many, "Range", rangeAZ)
		r.in <- r.items(11, 1, "Range", getK)
		ended(many + 1)
		for _, op := range r.api.RequestStats().Times {
			if op.Success && op.Max != 0 {
				t.Errorf("a get took %v, want no time: the wait before was another's", op.Max)
			}
		}
	})
}

// Those who have done an item wait for another, no more of them than may, and end with their
// stream.
func TestWhoHasDoneAnItemWaitsForAnother(t *testing.T) {
	var api *API
	onStream(t, func(r *fastRig) {
		api = r.api
		leave := make(chan struct{})
		r.onRead = func(context.Context, kvnode.ReadMode) error { <-leave; return nil }
		const many = 2 * maxIdleWorkers
		r.in <- r.items(1, many, "Range", getK)
		synctest.Wait()
		if n := api.fast.idleWorkers.Load(); n != 0 {
			t.Errorf("%d wait for an item while each has one", n)
		}
		close(leave)
		for range many {
			r.next()
		}
		synctest.Wait()
		if n := api.fast.idleWorkers.Load(); n != maxIdleWorkers {
			t.Errorf("%d wait for an item, want %d", n, maxIdleWorkers)
		}
		r.onRead = hang
		r.in <- r.items(1, 3, "Range", getK)
		synctest.Wait()
		if n := api.fast.idleWorkers.Load(); n != maxIdleWorkers-3 {
			t.Errorf("%d wait for an item when 3 have got one, want %d", n, maxIdleWorkers-3)
		}
	})
	if n := api.fast.idleWorkers.Load(); n != 0 {
		t.Errorf("%d wait for an item of a stream that has ended", n)
	}
}
