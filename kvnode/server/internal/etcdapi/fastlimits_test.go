package etcdapi

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/fastkv"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// A connection may have as many streams as all leave free. The error has the limit.
func TestConnectionsShareFastStreams(t *testing.T) {
	var l fastLimits
	l.init()
	fill := func(addr net.Addr) (all []*fastConn) {
		for {
			c, err := l.openStream(addr)
			if err != nil {
				if want := fmt.Sprintf("together at most %d", maxFastStreams); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), want) {
					t.Errorf("a stream too many = %v, want ResourceExhausted, %q", err, want)
				}
				return all
			}
			all = append(all, c)
		}
	}
	first := fill(&net.TCPAddr{Port: 1})
	second := fill(&net.TCPAddr{Port: 2})
	if len(first) != maxFastStreams/2 || len(second) != maxFastStreams/4 {
		t.Errorf("connections have %d and %d streams, want %d and %d", len(first), len(second), maxFastStreams/2, maxFastStreams/4)
	}
	for _, c := range append(first, second...) {
		l.closeStream(c)
	}
	if l.mu.streams != 0 || len(l.mu.conns) != 0 {
		t.Errorf("%d streams and %d connections are left", l.mu.streams, len(l.mu.conns))
	}
}

// If other streams use up the limit, a request above fairFastBytes is rejected: waiting for its
// own stream could not free enough.
func TestLargeRequestAboveLimitIsRejected(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.api.fast.bytes.Add(maxFastBytes)
		r.in <- r.requests(1, 1, "Put", &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 60<<10)})
		r.want(1, codes.ResourceExhausted, "make a call instead")
		r.in <- r.requests(2, 1, "Put", putK)
		r.want(2, codes.OK, "")
		r.api.fast.bytes.Add(-maxFastBytes)
		synctest.Wait()
		if n := r.api.fast.bytes.Load(); n != 0 {
			t.Errorf("the stream costs %d bytes when all is answered", n)
		}
	})
}

// unwritten is a stream on which gRPC never writes a message.
type unwritten struct {
	*fastRig

	messages atomic.Int64
}

// SendMsg implements grpc.ServerStream.
func (u *unwritten) SendMsg(any) error {
	u.messages.Add(1)
	return nil
}

// Answers for a client that does not read share messages, however slowly they come, and the
// stream is charged for the messages' capacity.
func TestUnwrittenAnswersShareMessages(t *testing.T) {
	onStream(t, func(r *fastRig) {
		u := &unwritten{fastRig: &fastRig{t: t, fakeNode: r.fakeNode, ctx: r.ctx, in: make(chan fastwire.Raw)}}
		over := make(chan struct{})
		go func() { defer close(over); _ = serveFast(&kvServer{API: r.api}, u) }()
		for _, leased := range []bool{false, true} {
			r.leased.Store(leased)
			for i := range 100 {
				u.in <- r.requests(i, 1, "Range", getK)
				synctest.Wait()
			}
		}
		if n := u.messages.Load(); n != maxUnwritten {
			t.Errorf("gRPC has %d messages that it has not written, want %d", n, maxUnwritten)
		}
		// The first of them has no answer. The next one is not with gRPC.
		if n := r.api.fast.bytes.Load(); n < maxUnwritten*minMessage || n > maxUnwritten*smallMessage {
			t.Errorf("a stream with 200 short answers costs %d bytes, want from %d to %d", n, maxUnwritten*minMessage, maxUnwritten*smallMessage)
		}
		r.cancel(context.Canceled)
		<-over
	})
}

// gRPC reports written messages, so an idle stream is charged for nothing.
func TestWrittenAnswersAreNotCharged(t *testing.T) {
	s := startServer(t, Config{})
	kv := fastkv.New(s.client(t))
	for range 100 {
		if _, err := kv.Put(t.Context(), &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 60<<10)}); err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Range(t.Context(), getK); err != nil { // a large answer
			t.Fatal(err)
		}
	}
	s.api.fast.mu.Lock()
	streams := s.api.fast.mu.streams
	s.api.fast.mu.Unlock()
	if streams == 0 {
		t.Skip("the machine stood still: there is no stream")
	}
	for s.api.fast.bytes.Load() != 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// A stream is charged for a message until it is sent. Otherwise its limit would grow or shrink
// with each message.
func TestSentAnswersAreNotCharged(t *testing.T) {
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

// A get that is answered inline must not have the ID of a pending request, or the pending request
// would no longer count towards the limit.
func TestInlineGetRejectsDuplicateID(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.onRead = func(ctx context.Context, mode kvnode.ReadMode) error {
			if _, ok := ctx.Deadline(); ok {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		r.leased.Store(true)
		r.in <- r.requests(7, 1, "Range", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")})
		synctest.Wait()
		r.in <- r.requests(7, 1, "Range", getK)
		r.want(7, codes.Unavailable, "request timed out")
		r.wantEnd(codes.InvalidArgument, "already has a pending request 7")
	})
}

// The metadata of a request have the same limit as those of a call.
func TestRequestMetadataIsLimited(t *testing.T) {
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

// Many streams with clients that do not read take no more memory than the limit of all streams.
// Other streams continue.
func TestUnreadStreamsAreBounded(t *testing.T) {
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
			r.in <- r.requests(i, 1, "Range", getK)
			r.want(uint64(i), codes.OK, "")
		}
	})
}

// A stream's charge is freed when it ends.
func TestEndedStreamIsNotCharged(t *testing.T) {
	var api *API
	onStream(t, func(r *fastRig) {
		api = r.api
		r.leased.Store(true)
		r.in <- r.requests(1, 3000, "Range", getK)
		r.in <- r.requests(4000, 3000, "Range", getK)
		synctest.Wait()
		if api.fast.bytes.Load() == 0 {
			t.Error("answers that wait are charged for no bytes")
		}
	})
	if n := api.fast.bytes.Load(); n != 0 {
		t.Errorf("a stream that has ended is charged for %d bytes, want 0", n)
	}
}

// Answers that become ready at the same time stay within a stream's limit.
func TestSimultaneousAnswersAreBounded(t *testing.T) {
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
		if n := r.api.fast.bytes.Load(); n < maxFastBytes/4 || n > maxFastBytes/3+8*size { // messages are charged by capacity
			t.Errorf("%d answers of %d bytes, which no client reads, cost %d bytes, want %d at most", sent, size, n, maxFastBytes/3)
		}
		for range sent {
			if a := r.next(); a.Code != 0 || len(a.Message) < size {
				t.Fatalf("an answer is %v %s, %d bytes", codes.Code(a.Code), a.Text, len(a.Message))
			}
		}
	})
}

// While streams of other connections use up the limit, a stream may have few pending requests,
// however short, because each has a goroutine.
func TestPendingRequestsAboveLimit(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.api.fast.bytes.Add(maxFastBytes)
		r.onRead = hang
		r.fill(16)
		if n := r.api.inFlight.Load(); n != fairFastBytes/requestCost-1 {
			t.Errorf("%d requests without an answer are taken, want %d", n, fairFastBytes/requestCost-1)
		}
	})
}

// Requests on a stream bypass the interceptors of an embedder, for example for authorization. So
// RegisterFast is separate.
func TestRegisterDoesNotRegisterFast(t *testing.T) {
	g := grpc.NewServer()
	New(newFakeNode(t), Config{}).Register(g)
	if _, ok := g.GetServiceInfo()[fastwire.Service]; ok {
		t.Error("Register offers streams, past the server's own interceptors")
	}
}
