package etcdapi

import (
	"context"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// What a stream is charged for is given back when it is sent, and no more than that: else
// its bound would grow by each message.
func TestAStreamThatHasAnsweredAllOwesNothing(t *testing.T) {
	for _, leased := range []bool{true, false} {
		onStream(t, func(r *fastRig) {
			r.leased.Store(leased)
			s := newFastStream(&kvServer{API: r.api}, nil, new(fastConn))
			for i := range uint64(100) {
				s.answer(i, &pb.RangeResponse{Count: 1}, nil)
				message, _ := s.next()
				message.Put(nil)
			}
			if s.mu.bytes != 0 {
				t.Errorf("a stream that has sent all answers is charged for %d bytes, want 0", s.mu.bytes)
			}
		})
	}
}

// A request that is answered in place must not take the ID of one that is under way: the
// bound of those under way would count that one no more.
func TestAnIDIsNotTakenTwiceInPlace(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.onRead = func(ctx context.Context, mode kvnode.ReadMode) error {
			if _, ok := ctx.Deadline(); ok {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		r.leased.Store(true)
		r.in <- r.items(7, 1, "Range", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")})
		synctest.Wait()
		r.in <- r.items(7, 1, "Range", getK)
		r.want(7, codes.Unavailable, "request timed out")
		r.wantEnd(codes.InvalidArgument, "a request 7 on the stream already")
	})
}

// The metadata of one request are bounded as those of a call.
func TestAnItemWithTooMuchMetadata(t *testing.T) {
	for name, md := range map[string][][]byte{
		"many": make([][]byte, 1<<20),
		"long": {[]byte("k"), make([]byte, maxHeaderBytes)},
	} {
		t.Run(name, func(t *testing.T) {
			onStream(t, func(r *fastRig) {
				r.in <- fastwire.AppendRequest(nil, fastwire.Request{ID: 5, Method: []byte("Range"), Metadata: md})
				r.wantEnd(codes.InvalidArgument, "metadata")
			})
		})
	}
}

// Many streams whose clients do not read take no more memory than all together may, and
// those who read go on.
func TestManyStreamsThatAreNotRead(t *testing.T) {
	onStream(t, func(r *fastRig) {
		const size, batch = 16 << 10, 64
		if _, err := r.Propose(r.ctx, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: make([]byte, size)}}); err != nil {
			t.Fatal(err)
		}
		r.leased.Store(true)
		var all []*fastRig
		defer func() {
			r.cancel(context.Canceled)
			for _, bad := range all {
				<-bad.over
			}
		}()
		for range 8 { // enough for all that there may be
			bad := &fastRig{t: t, fakeNode: r.fakeNode, ctx: r.ctx, in: make(chan fastwire.Raw), out: make(chan fastwire.Raw), over: make(chan struct{})}
			go func() {
				defer close(bad.over)
				bad.ended = serveFast(&kvServer{API: r.api}, bad)
			}()
			<-bad.out
			bad.api = r.api
			bad.fill(batch)
			all = append(all, bad)
		}
		if n := r.api.fast.bytes.Load(); n > maxFastBytes || n < maxFastBytes/4 {
			t.Errorf("answers of %d bytes wait for clients that do not read, want up to %d", n, maxFastBytes)
		}
		for i := range 20 {
			r.in <- r.items(i, 1, "Range", getK)
			r.want(uint64(i), codes.OK, "")
		}
	})
}

// What a stream was charged for is given back when it ends.
func TestAStreamThatHasEndedOwesNothing(t *testing.T) {
	var api *API
	onStream(t, func(r *fastRig) {
		api = r.api
		r.leased.Store(true)
		r.in <- r.items(1, 3000, "Range", getK)
		r.in <- r.items(4000, 3000, "Range", getK)
		synctest.Wait()
		if api.fast.bytes.Load() == 0 {
			t.Error("answers that wait are charged for no bytes")
		}
	})
	if n := api.fast.bytes.Load(); n != 0 {
		t.Errorf("a stream that has ended is charged for %d bytes, want 0", n)
	}
}

// Answers that come all at once, since what their requests have waited for has come, are no
// more than a stream may have.
func TestAnswersThatComeAtOnce(t *testing.T) {
	onStream(t, func(r *fastRig) {
		const size = 16 << 10
		if _, err := r.Propose(r.ctx, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: make([]byte, size)}}); err != nil {
			t.Fatal(err)
		}
		leave := make(chan struct{})
		r.onRead = func(context.Context, kvnode.ReadMode) error { <-leave; return nil }
		sent := r.fill(100)
		close(leave)
		synctest.Wait()
		if n := r.api.fast.bytes.Load(); n < maxFastBytes/4 || n > maxFastBytes/3+4*size { // messages are charged by capacity
			t.Errorf("%d answers of %d bytes, which nobody reads, cost %d bytes, want %d at most", sent, size, n, maxFastBytes/3)
		}
		for range sent {
			if a := r.next(); a.Code != 0 || len(a.Message) < size {
				t.Fatalf("an answer is %v %s, %d bytes", codes.Code(a.Code), a.Text, len(a.Message))
			}
		}
	})
}

// While streams of other connections cost as much as all may, a stream has few requests without an
// answer, however short: each has a goroutine.
func TestItemsInACrowd(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.api.fast.bytes.Add(maxFastBytes)
		r.onRead = hang
		r.fill(16)
		if n := r.api.inFlight.Load(); n != fairFastBytes/requestCost-1 {
			t.Errorf("%d requests without an answer are taken, want %d", n, fairFastBytes/requestCost-1)
		}
	})
}

// Requests on a stream pass none of the interceptors that who embeds the API has added, such
// as one that authorizes calls, so the stream has to be asked for.
func TestNoStreamUnlessItIsAskedFor(t *testing.T) {
	g := grpc.NewServer()
	New(newFakeNode(t), Config{}).Register(g)
	if _, ok := g.GetServiceInfo()[fastwire.Service]; ok {
		t.Error("Register offers streams, past the server's own interceptors")
	}
}
