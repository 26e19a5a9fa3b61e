package etcdapi

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/leaderlease/go/kvnode/internal/etcdapi/callmetrics"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// Gets that are refused in place are answers, too: a client that does not read them is not
// read from.
func TestRefusalsInPlaceStayWithinTheBound(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.leased.Store(true)
		r2 := r.beside(Config{MaxInFlight: 1})
		r2.api.inFlight.Store(1)
		r2.api.fast.bytes.Store(maxFastBytes) // of others
		const n = 10_000
		r2.in <- r.items(1, n, "Range", getK)
		synctest.Wait()
		const most = fairFastBytes + placeBytes
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

// loud is a log that panics.
type loud struct{ slog.Handler }

func (l loud) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (loud) Enabled(context.Context, slog.Level) bool { return true }
func (loud) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		panic("loud")
	}
	return nil
}

// slowNode is a member that takes its time to answer.
type slowNode struct {
	*fakeNode
	after time.Duration
}

func (n slowNode) Term() uint64 { time.Sleep(n.after); return n.fakeNode.Term() }

// A get that panics once it has its answer has failed, and has not succeeded besides.
func TestAPanicAfterTheAnswerIsOneFailure(t *testing.T) {
	onStream(t, func(r *fastRig) {
		metrics := callmetrics.New(false)
		r.leased.Store(true)
		r2 := r.beside(Config{Metrics: metrics, Logger: slog.New(loud{})})
		r2.api.node = slowNode{r.fakeNode, time.Minute}
		r2.in <- r.items(1, 1, "Range", getK)
		r2.want(1, codes.Internal, "internal error")
		synctest.Wait()
		const want = "OK 0, ResourceExhausted 0, Unavailable 0, Internal 1, started 1"
		if got := callsOf(t, metrics); got != want {
			t.Errorf("calls of Range: %s; want %s", got, want)
		}
	})
}

// What is answered in place is, byte for byte of its meaning, what an item of its own is
// answered with, however the request is encoded.
func TestInPlaceAgreesWithItems(t *testing.T) {
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
			if _, ok := fastwire.Get(data); ok {
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
