package etcdapi

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/store"
)

var rangeAZ = &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")}

// beside serves another stream of r's member with its own metadata and configuration.
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

// hangRanges makes reads wait, except gets that are answered inline.
func hangRanges(ctx context.Context, mode kvnode.ReadMode) error {
	if _, ok := ctx.Deadline(); ok {
		return hang(ctx, mode)
	}
	return nil
}

// Inline answers have the same limits, errors and counts as calls.
func TestInlineGetsBehaveLikeCalls(t *testing.T) {
	onStream(t, func(r *fastRig) {
		metrics := NewCallMetrics(false)
		r.leased.Store(true)
		r.onRead = hangRanges
		r2 := r.beside(Config{MaxInFlight: 1, Metrics: metrics}, "hasleader", "true")
		r2.in <- r.requests(1, 50, "Range", getK)
		for i := range 50 {
			r2.want(uint64(1+i), codes.OK, "")
		}
		r2.in <- r.requests(1, 1, "Range", rangeAZ)
		synctest.Wait()
		r2.in <- r.requests(2, 2, "Range", getK)
		r2.want(2, codes.ResourceExhausted, "1 are under way, which is the limit")
		r2.want(3, codes.ResourceExhausted, "1 are under way, which is the limit")
		r2.want(1, codes.Unavailable, "request timed out")
		r.setLeader(0)
		r2.in <- r.requests(4, 1, "Range", getK)
		r2.want(4, codes.Unavailable, status.Convert(rpctypes.ErrGRPCNoLeader).Message())
		r.setLeader(testMember)
		r2.api.node = brokenStore{r.fakeNode}
		r2.in <- r.requests(5, 1, "Range", getK)
		r2.want(5, codes.Internal, "failed with an internal error")
		r2.api.node = r.fakeNode
		r2.in <- r.requests(6, 1, "Range", getK)
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

// brokenStore is a member that panics when its store is read.
type brokenStore struct{ *fakeNode }

func (brokenStore) Store() *store.Store { panic("broken") }

// callsOf returns the counts of gets.
func callsOf(t *testing.T, metrics *CallMetrics) string {
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

// Inline answers are sent while the receiver waits for space, and that wait does not count as the
// duration of the next get.
func TestInlineAnswersDoNotWait(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.leased.Store(true)
		r.onRead = hangRanges
		message := r.requests(1, 10, "Range", getK)
		const many = aloneRequests + 100
		message = append(message, r.requests(100, many, "Range", rangeAZ)...)
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
		r.in <- r.requests(100, many, "Range", rangeAZ)
		r.in <- r.requests(11, 1, "Range", getK)
		ended(many + 1)
		for _, op := range r.api.RequestStats().Times {
			if op.Success && op.Max != 0 {
				t.Errorf("a get took %v, want no time: the wait before was another's", op.Max)
			}
		}
	})
}

// Workers that have served a request wait for another, at most maxIdleWorkers of them, and end
// with their stream.
func TestIdleWorkersAreReused(t *testing.T) {
	var api *API
	onStream(t, func(r *fastRig) {
		api = r.api
		leave := make(chan struct{})
		r.onRead = func(context.Context, kvnode.ReadMode) error { <-leave; return nil }
		const many = 2 * maxIdleWorkers
		r.in <- r.requests(1, many, "Range", getK)
		synctest.Wait()
		if n := api.fast.idleWorkers.Load(); n != 0 {
			t.Errorf("%d workers wait for a request while each has one", n)
		}
		close(leave)
		for range many {
			r.next()
		}
		synctest.Wait()
		if n := api.fast.idleWorkers.Load(); n != maxIdleWorkers {
			t.Errorf("%d workers wait for a request, want %d", n, maxIdleWorkers)
		}
		r.onRead = hang
		r.in <- r.requests(1, 3, "Range", getK)
		synctest.Wait()
		if n := api.fast.idleWorkers.Load(); n != maxIdleWorkers-3 {
			t.Errorf("%d workers wait for a request when 3 have one, want %d", n, maxIdleWorkers-3)
		}
	})
	if n := api.fast.idleWorkers.Load(); n != 0 {
		t.Errorf("%d workers wait for a request of a stream that has ended", n)
	}
}

// Errors of inline gets count as answers: a client that does not read them is not read from.
func TestInlineErrorsAreBounded(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.leased.Store(true)
		r2 := r.beside(Config{MaxInFlight: 1})
		r2.api.inFlight.Store(1)
		r2.api.fast.bytes.Store(maxFastBytes) // of others
		const n = 10_000
		r2.in <- r.requests(1, n, "Range", getK)
		synctest.Wait()
		const most = fairFastBytes + inlineBytes
		if have := r2.api.fast.bytes.Load() - maxFastBytes; have > most {
			t.Errorf("%d bytes of refusals wait for a client that does not read, want no more than %d", have, most)
		}
		for i := range n {
			if a := r2.next(); a.ID != uint64(1+i) || codes.Code(a.Code) != codes.ResourceExhausted {
				t.Fatalf("answer %d is %d, %v", 1+i, a.ID, codes.Code(a.Code))
			}
		}
	})
}

// loud is a log that panics at warnings.
type loud struct{ slog.Handler }

func (l loud) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (loud) Enabled(context.Context, slog.Level) bool { return true }
func (loud) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		panic("loud")
	}
	return nil
}

// slowNode is a member that answers slowly.
type slowNode struct {
	*fakeNode
	after time.Duration
}

func (n slowNode) Term() uint64 { time.Sleep(n.after); return n.fakeNode.Term() }

// A get that panics after it was answered counts as failed only.
func TestInlinePanicCountsOnce(t *testing.T) {
	onStream(t, func(r *fastRig) {
		metrics := NewCallMetrics(false)
		r.leased.Store(true)
		r2 := r.beside(Config{Metrics: metrics, Logger: slog.New(loud{})})
		r2.api.node = slowNode{r.fakeNode, time.Minute}
		r2.in <- r.requests(1, 1, "Range", getK)
		r2.want(1, codes.Internal, "internal error")
		synctest.Wait()
		const want = "OK 0, ResourceExhausted 0, Unavailable 0, Internal 1, started 1"
		if got := callsOf(t, metrics); got != want {
			t.Errorf("calls of Range: %s; want %s", got, want)
		}
	})
}

// An inline answer is the same as the answer of a worker, however the request is encoded.
func TestInlineGetsAgreeWithWorkers(t *testing.T) {
	onStream(t, func(r *fastRig) {
		for i, put := range []*pb.PutRequest{
			{Key: []byte("k"), Value: []byte("v")},
			{Key: []byte("k"), Value: []byte("v2"), Lease: 0},
			{Key: []byte("e")},
			{Key: []byte("\x00"), Value: make([]byte, 300)},
			{Key: bytes.Repeat([]byte("x"), 200), Value: make([]byte, smallReply-500)},
			{Key: []byte("l"), Value: make([]byte, smallReply)},
			{Key: []byte("d"), Value: []byte("gone")},
		} {
			if _, err := r.Propose(r.ctx, &pb.InternalRaftRequest{Put: put}); err != nil {
				t.Fatal(i, err)
			}
		}
		if _, err := r.Propose(r.ctx, &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("d")}}); err != nil {
			t.Fatal(err)
		}
		r.leased.Store(true)
		rng := rand.New(rand.NewPCG(1, 2))
		pieces := [][]byte{
			{0x0a, 1, 'k'},
			{0x0a, 1, 'e'},
			{0x0a, 1, 0},
			{0x0a, 1, 'l'},
			{0x0a, 1, 'd'},
			{0x0a, 0},
			append([]byte{0x0a, 0xc8, 1}, bytes.Repeat([]byte("x"), 200)...),
			{0x0a, 0x81, 0, 'k'},
			{0x8a, 0, 1, 'k'},
			{0x12, 0},
			{0x12, 1, 0},
			{0x18, 1},
			{0x18, 0x80, 0},
			{0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
			{0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2},
			{0x20, 0},
			{0x20, 1},
			{0x20, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
			{0x28, 1},
			{0x28, 9},
			{0x30, 9},
			{0x38, 1},
			{0x38, 5},
			{0x40, 1},
			{0x48, 1},
			{0x50, 1},
			{0x58, 1},
			{0x60, 1},
			{0x68, 1},
			{0x7d, 1, 2, 3, 4},
			{0x0b, 0x0c},
			{0x0c},
			{0x0d, 1, 2, 3, 4},
			{0x08, 1},
			{0x0a, 200, 'k'},
			{0x0a},
			{0x1a, 1, 1},
			{0x3a, 1, 1},
			{0x00},
			{0xff},
		}
		inPlace := 0
		for range 20_000 {
			var data []byte
			for range 1 + rng.IntN(4) {
				data = append(data, pieces[rng.IntN(len(pieces))]...)
			}
			if rng.IntN(10) == 0 {
				data = data[:rng.IntN(len(data)+1)]
			}
			if _, ok := fastwire.DecodeGet(data); ok {
				inPlace++
			}
			ask := func(md ...[]byte) fastwire.Answer {
				r.in <- fastwire.AppendRequest(nil, fastwire.Request{ID: 1, Method: []byte("Range"), Message: data, Metadata: md})
				return r.next()
			}
			got, want := ask(), ask([]byte("a"), []byte("b"))
			if got.Code != want.Code || !bytes.Equal(got.Text, want.Text) || !bytes.Equal(got.Message, want.Message) {
				t.Fatalf("%x is answered with %v in place, want %v", data, got, want)
			}
		}
		if inPlace < 1000 {
			t.Errorf("%d gets are answered in place, which is too few to tell", inPlace)
		}
	})
}
