package etcdapi

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// A malformed request fails alone if it can be told from others. Otherwise the stream fails.
func TestMalformedRequests(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.in <- r.requests(1, 1, "RangeStream", getK)
		r.want(1, codes.Unimplemented, `no method "RangeStream"`)
		r.in <- r.requests(2, 1, strings.Repeat("x", 1000), getK)
		if a := r.next(); len(a.Text) > 300 {
			t.Errorf("a long name is answered with %d bytes", len(a.Text))
		}
		r.in <- fastwire.AppendRequest(nil, fastwire.Request{ID: 3, Method: []byte("Range"), Message: []byte{0xff}})
		r.want(3, codes.Internal, "grpc: error unmarshalling request")
		r.in <- r.requests(4, 1, "Range", getK)
		r.want(4, codes.OK, "")
		r.in <- fastwire.Raw{0x0a, 2, 0x08, 0x80}
		r.wantEnd(codes.InvalidArgument, "cannot be read")
	})
	onStream(t, func(r *fastRig) {
		r.in <- append(r.requests(1, 1, "Range", getK), 0xff)
		r.want(1, codes.OK, "")
		r.wantEnd(codes.InvalidArgument, "cannot be read: unexpected EOF")
	})
	onStream(t, func(r *fastRig) {
		r.in <- fastwire.AppendRequest(nil, fastwire.Request{ID: 5, Method: []byte("Range"), Metadata: [][]byte{[]byte("hasleader")}})
		r.wantEnd(codes.InvalidArgument, "request 5 has 1 keys and values of metadata")
	})
	onStream(t, func(r *fastRig) {
		r.onRead = hang
		r.in <- r.requests(6, 1, "Range", getK)
		r.in <- r.requests(6, 1, "Range", getK)
		r.want(6, codes.Unavailable, "request timed out") // the first of them is finished
		r.wantEnd(codes.InvalidArgument, "already has a pending request 6")
	})
}

// Requests that never end block their own stream only. Ten thousand late cancellations have no
// effect.
func TestRequestsThatNeverEnd(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.onRead = hang
		sent := r.fill(100)
		first := int(r.api.inFlight.Load())
		if first < aloneRequests || first > aloneRequests+10 {
			t.Errorf("%d requests are in progress, want about %d", first, aloneRequests)
		}
		time.Sleep(r.Config().RequestTimeout)
		for range first {
			if a := r.next(); codes.Code(a.Code) != codes.Unavailable {
				t.Fatalf("a request ends with %v %s", codes.Code(a.Code), a.Text)
			}
		}
		synctest.Wait()
		var cancels fastwire.Raw
		for i := range 10_000 {
			cancels = fastwire.AppendRequest(cancels, fastwire.Request{ID: uint64(i), Cancel: true})
		}
		r.in <- cancels
		for range sent - first {
			if a := r.next(); codes.Code(a.Code) != codes.Canceled || a.ID < uint64(first) {
				t.Fatalf("request %d, which was cancelled, ends with %v %s", a.ID, codes.Code(a.Code), a.Text)
			}
		}
		r.onRead = nil
		r.in <- r.requests(1, 1, "Range", getK)
		r.want(1, codes.OK, "")
	})
}

// A client that does not read is not read from. Its waiting answers stay bounded, inline or not.
func TestUnreadAnswersAreBounded(t *testing.T) {
	for _, leased := range []bool{true, false} {
		onStream(t, func(r *fastRig) {
			r.leased.Store(leased)
			const size, batch = 16 << 10, 64
			if _, err := r.Propose(r.ctx, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: make([]byte, size)}}); err != nil {
				t.Fatal(err)
			}
			sent := r.fill(batch)
			// The capacity of a message is up to a third more than its answers.
			if want := maxFastBytes / 3 / size; sent > want+2*batch || sent < want*3/4-batch {
				t.Errorf("%d answers of %d bytes wait, leased %v; want %d", sent, size, leased, want)
			}
			for range sent {
				if a := r.next(); a.Code != 0 || len(a.Message) < size {
					t.Fatalf("an answer is %v %s, %d bytes", codes.Code(a.Code), a.Text, len(a.Message))
				}
			}
		})
	}
}

// Each request has its own deadline, and a late one is not executed.
func TestRequestsHaveDeadlines(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r.onRead = hang
		get, _ := proto.Marshal(getK)
		request := fastwire.Request{ID: 1, Method: []byte("Range"), Message: get, Timeout: time.Second}
		begun := time.Now()
		r.in <- fastwire.AppendRequest(nil, request)
		r.want(1, codes.DeadlineExceeded, "context deadline exceeded")
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it took %v, want 1s", took)
		}
		put := fastwire.Request{ID: 2, Method: []byte("Put"), Timeout: -1}
		before := r.proposals()
		r.in <- fastwire.AppendRequest(nil, put)
		r.want(2, codes.DeadlineExceeded, "context deadline exceeded")
		if n := r.proposals(); n != before {
			t.Error("a put after its deadline is proposed")
		}
	})
}

// Gets are answered inline only under the lease, which is checked once per message, and only for
// one key, a small answer and no read mode.
func TestInlineGetsNeedTheLease(t *testing.T) {
	onStream(t, func(r *fastRig) {
		asked, own := 0, 0
		r.onRead = func(ctx context.Context, mode kvnode.ReadMode) error {
			if _, ok := ctx.Deadline(); !ok {
				asked++ // for the message
				return nil
			}
			own++
			return kvnode.ErrNoLeader
		}
		r.in <- r.requests(1, 1, "Range", getK)
		r.want(1, codes.Unavailable, "no leader") // not leased
		r.leased.Store(true)
		r.in <- r.requests(2, 50, "Range", getK)
		for i := range 50 {
			r.want(uint64(2+i), codes.OK, "")
		}
		if asked != 1 || own != 1 {
			t.Errorf("the lease was asked %d times for 50 gets, %d had to wait; want once and none", asked, own-1)
		}
		r.in <- r.requests(1, 1, "Range", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")})
		r.want(1, codes.Unavailable, "no leader")
		r.in <- fastwire.AppendRequest(nil, fastwire.Request{ID: 1, Method: []byte("Range"), Metadata: [][]byte{[]byte(fastwire.MetadataReadMode), []byte("read-index")}})
		r.want(1, codes.InvalidArgument, "key is not provided")
		r.in <- r.requests(1, 1, "Range", &pb.RangeRequest{})
		r.want(1, codes.InvalidArgument, "key is not provided")
	})
}

// A large answer is sent in pieces, one per message, and small answers do not wait for it.
func TestLargeAnswersAreSentInPieces(t *testing.T) {
	onStream(t, func(r *fastRig) {
		value := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
		put := &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: value}}
		if _, err := r.Propose(r.ctx, put); err != nil {
			t.Fatal(err)
		}
		r.leased.Store(true)
		r.in <- r.requests(1, 1, "Range", getK)
		synctest.Wait()
		r.in <- r.requests(2, 3, "Range", &pb.RangeRequest{Key: []byte("none")})
		synctest.Wait()
		var whole []byte
		small := 0
		for more := true; more; {
			a := r.next()
			if a.ID != 1 {
				small++
				continue
			}
			if whole, more = append(whole, a.Message...), a.More; !more && small < 3 {
				t.Errorf("%d small answers came before the end of a large one, want 3", small)
			}
		}
		resp := new(pb.RangeResponse)
		if err := proto.Unmarshal(whole, resp); err != nil || !bytes.Equal(resp.GetKvs()[0].GetValue(), value) {
			t.Errorf("the pieces are %d bytes, %v", len(whole), err)
		}
		synctest.Wait()
		if n := len(r.api.replies.mu.held); n != 0 {
			t.Errorf("%d answers that were sent have room", n)
		}
	})
}

// When the client has disconnected, its requests are cancelled. When it has only closed its side,
// they are finished and answered.
func TestStreamEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*fastRig)
		code codes.Code
		want string
	}{
		{"the client has no more to ask", func(r *fastRig) { close(r.in) }, codes.OK, ""},
		{"the client has gone", func(r *fastRig) { r.cancel(context.Canceled) }, codes.Canceled, "gone"},
	} {
		onStream(t, func(r *fastRig) {
			enter, leave := make(chan struct{}), make(chan struct{})
			var err error
			r.onPropose = func(ctx context.Context, _ *pb.InternalRaftRequest) error {
				close(enter)
				select {
				case <-leave:
				case <-ctx.Done():
				}
				err = ctx.Err()
				return err
			}
			r.in <- r.requests(1, 1, "Put", &pb.PutRequest{Key: []byte("k")})
			<-enter
			c.end(r)
			synctest.Wait()
			close(leave)
			if c.code == codes.OK {
				r.want(1, codes.OK, "")
			}
			<-r.over
			if got := status.Code(r.ended); got != c.code || (err == nil) != (c.code == codes.OK) {
				t.Errorf("%s: the stream ends with %v, the put with %v", c.name, r.ended, err)
			}
		})
	}
}

// stoppable is a fastRig with another context.
type stoppable struct {
	*fastRig
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *stoppable) Context() context.Context { return s.ctx }

// A message above gRPC's limit ends its own stream only.
func TestMessageAboveLimitEndsItsStream(t *testing.T) {
	s := startServer(t, Config{})
	open := func() grpc.ClientStream {
		desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
		c, err := s.conn.NewStream(t.Context(), desc, fastwire.Method, grpc.ForceCodecV2(fastwire.NewCodec()))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	bad, good := open(), open()
	var hello, answer fastwire.Raw
	for _, c := range []grpc.ClientStream{bad, good} {
		if err := c.RecvMsg(&hello); err != nil {
			t.Fatal(err)
		}
	}
	if err := bad.SendMsg(fastwire.Raw(make([]byte, testRequestBytes+messageOverhead+1))); err != nil {
		t.Fatal(err)
	}
	if err := bad.RecvMsg(&answer); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message that is too large = %v, want ResourceExhausted", err)
	}
	if err := good.SendMsg(fastwire.Raw(fastwire.AppendRequest(nil, fastwire.Request{ID: 1, Method: []byte("Range")}))); err != nil {
		t.Fatal(err)
	}
	if err := good.RecvMsg(&answer); err != nil || !bytes.Contains(answer, []byte("key is not provided")) {
		t.Errorf("the other stream = %q, %v", answer, err)
	}
}

var putK = &pb.PutRequest{Key: []byte("k")}

// wantEnding fails unless the stream has reported that the member stops, and the last request
// that it has received.
func (r *fastRig) wantEnding(last uint64) {
	r.t.Helper()
	for over := false; !over; {
		select {
		case message := <-r.out:
			r.read(message)
		case <-r.over:
			over = true
		}
	}
	r.wantEnd(codes.Unavailable, status.Convert(rpctypes.ErrGRPCStopped).Message())
	if !slices.Equal(r.ending, []uint64{last}) {
		r.t.Errorf("the stream has said that request %d was taken last, want %d", r.ending, last)
	}
}

// holdPuts makes proposals wait until the channel is closed.
func (r *fastRig) holdPuts() (leave chan struct{}) {
	leave = make(chan struct{})
	r.onPropose = func(ctx context.Context, _ *pb.InternalRaftRequest) error {
		select {
		case <-leave:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return leave
}

// A member that stops finishes the requests that it has received, reports the last of them, and
// accepts no more.
func TestStoppingMemberFinishesRequests(t *testing.T) {
	onStream(t, func(r *fastRig) {
		leave := r.holdPuts()
		before := r.proposals()
		r.in <- r.requests(6, 2, "Put", putK)
		synctest.Wait()
		r.api.StopFastStreams()
		synctest.Wait()
		r.in <- r.requests(8, 3, "Put", putK)
		synctest.Wait()
		close(leave)
		for range 2 {
			if a := r.next(); a.ID > 7 || a.Code != 0 {
				t.Errorf("request %d is answered with %v, want 6 and 7", a.ID, codes.Code(a.Code))
			}
		}
		r.wantEnding(7)
		if n := r.proposals() - before; n != 2 {
			t.Errorf("%d puts are proposed, want the 2 that were taken", n)
		}
		late := r.beside(r.api.cfg)
		late.api.StopFastStreams()
		late.wantEnding(0)
	})
}

// A message that is being handled when the member stops is handled completely.
func TestStoppingMemberFinishesMessage(t *testing.T) {
	onStream(t, func(r *fastRig) {
		leave := r.holdPuts()
		const many = aloneRequests + 100 // more than there is room for
		r.in <- r.requests(1, many, "Put", putK)
		synctest.Wait()
		r.api.StopFastStreams()
		synctest.Wait()
		close(leave)
		for range many {
			if a := r.next(); a.Code != 0 {
				t.Fatalf("request %d is answered with %v", a.ID, codes.Code(a.Code))
			}
		}
		r.wantEnding(many)
	})
}
