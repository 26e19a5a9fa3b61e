package fastkv

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// wantCall fails unless the next read is a call.
func (r *rig) wantCall(what string) {
	r.t.Helper()
	before := r.calls.Load()
	if count, err := r.get(r.t.Context()); err != nil || count != -1 || r.calls.Load() != before+1 {
		r.t.Errorf("%s: a read = %d, %v, want a call", what, count, err)
	}
}

// wantBy fails unless the next read uses s.
func (r *rig) wantBy(s *served, what string) {
	r.t.Helper()
	end := asked(func() error {
		count, err := r.get(r.t.Context())
		if count != 7 {
			r.t.Errorf("%s: a read = %d, %v, want it by the stream", what, count, err)
		}
		return err
	})
	select {
	case m := <-s.requests:
		s.pending = nil
		go func() { s.requests <- m }()
		s.answer(s.next().ID, &pb.RangeResponse{Count: 7})
	case err := <-end:
		end = asked(func() error { return err })
	}
	if err := <-end; err != nil {
		r.t.Errorf("%s: %v", what, err)
	}
}

// A server that does not know the service gets calls, also for writes, since nothing was sent.
// The client tries again after a while, and not with each request.
func TestAServerThatDoesNotKnowTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for name, write := range r.mutations() {
			end := asked(func() error { return write(t.Context()) })
			synctest.Wait()
			if len(r.streams) > 0 {
				s := <-r.streams
				s.ends <- status.Error(codes.Unimplemented, "unknown service")
			}
			if err := <-end; err != nil {
				t.Errorf("%s = %v, want a call", name, err)
			}
		}
		for range 8 {
			time.Sleep(time.Second)
			r.wantCall("soon after")
		}
		if n := len(r.streams); n != 0 {
			t.Errorf("%d streams were tried within 8 s", n)
		}
		time.Sleep(maxRetry)
		end := asked(func() error { return r.mutations()["Put"](t.Context()) })
		s := r.accept(1)
		s.answer(s.next().ID, &pb.PutResponse{})
		if err := <-end; err != nil {
			t.Errorf("a put once the server knows the service = %v", err)
		}
	})
}

// A stream that is silent while an answer is due is not used, and another one is opened. Its
// pending calls may still be answered.
func TestASilentStreamIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hangs := asked(func() error { return r.mutations()["Put"](t.Context()) })
		s := r.accept(1)
		put := s.next()
		r.wantBy(s, "a moment later")
		hangs2 := asked(func() error { return r.mutations()["Put"](t.Context()) })
		put2 := s.next()
		time.Sleep(answerTimeout - time.Millisecond)
		r.wantBy(s, "just before its time")
		third := asked(func() error { return r.mutations()["Put"](t.Context()) })
		put3 := s.next()
		time.Sleep(answerTimeout)
		r.wantCall("after its time, while no other stream opens")
		other := r.accept(1)
		synctest.Wait()
		r.wantBy(other, "by the other stream")
		if s.ctx.Err() != nil {
			t.Error("the silent stream was ended with what it carries")
		}
		for _, p := range []uint64{put.ID, put2.ID, put3.ID} {
			s.answer(p, &pb.PutResponse{})
		}
		for _, end := range []<-chan error{hangs, hangs2, third} {
			if err := <-end; err != nil {
				t.Errorf("a put that is answered late = %v", err)
			}
		}
		synctest.Wait()
		if s.ctx.Err() == nil || other.ctx.Err() != nil {
			t.Error("the stream that was left goes on, or the new one does not")
		}
	})
}

// While the member does not lead, the client tries others, less and less often, and uses the
// leader's stream once it has one. The former stream ends after its last answer.
func TestTheLeaderIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		put := asked(func() error { return r.mutations()["Put"](t.Context()) })
		s := r.accept(2)
		got := s.next()
		tried := 0
		for range 20 {
			r.wantBy(s, "while it is the best")
			time.Sleep(answerTimeout)
			synctest.Wait()
			for ; len(r.streams) > 0; tried++ {
				bad := r.accept(2)
				synctest.Wait()
				if bad.ctx.Err() == nil {
					t.Error("a stream that is no better is kept")
				}
			}
		}
		if tried < 4 || tried > 9 {
			t.Errorf("%d streams were tried in 20 s, want some, and fewer as time goes by", tried)
		}
		time.Sleep(maxRetry)
		r.wantBy(s, "once more")
		good := r.accept(1)
		synctest.Wait()
		r.wantBy(good, "by the leader's")
		if s.ctx.Err() != nil {
			t.Error("the follower's stream was ended with what it carries")
		}
		s.answer(got.ID, &pb.PutResponse{})
		if err := <-put; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if s.ctx.Err() == nil {
			t.Error("the follower's stream goes on")
		}
	})
}

// gRPC rotates through the endpoints, so each is tried at once. Otherwise a new client would use
// a follower for half a second.
func TestEachEndpointHasItsTurnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		three := []string{"a", "b", "c"}
		r.client.streams.endpoints = func() []string { return three }
		end := asked(func() error { _, err := r.get(t.Context()); return err })
		s := r.accept(2)
		s.answer(s.next().ID, &pb.RangeResponse{})
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		r.wantBy(s, "while the second is asked")
		r.accept(2)
		synctest.Wait()
		r.wantBy(s, "while the third is asked")
		good := r.accept(1)
		synctest.Wait()
		r.wantBy(good, "by the leader's")
	})
}

// Requests that only a call can make are calls.
func TestWhatNeedsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		end := asked(func() error { _, err := r.get(t.Context()); return err })
		s := r.accept(1)
		s.answer(s.next().ID, &pb.RangeResponse{})
		if err := <-end; err != nil {
			t.Error(err)
		}
		for name, opt := range map[string]grpc.CallOption{
			"trailers": grpc.Trailer(&metadata.MD{}), "headers": grpc.Header(&metadata.MD{}), "the peer": grpc.Peer(&peer.Peer{}),
			"a small limit": grpc.MaxCallSendMsgSize(1),
		} {
			if count, err := r.get(t.Context(), opt); count != -1 || err != nil {
				t.Errorf("a read that wants %s = %d, %v, want a call", name, count, err)
			}
		}
		if _, err := r.Put(t.Context(), &pb.PutRequest{Value: make([]byte, maxRequest)}); err != nil || r.calls.Load() != 5 {
			t.Errorf("a large put = %v after %d calls, want a call", err, r.calls.Load())
		}
	})
}

// An answer above the limit fails like that of a call, and only the allowed part is kept.
func TestAnAnswerAboveTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		end := asked(func() error { _, err := r.get(t.Context(), grpc.MaxCallRecvMsgSize(1)); return err })
		s := r.accept(1)
		s.answer(s.next().ID, &pb.RangeResponse{Count: 1})
		if err := <-end; status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max (2 vs. 1)") {
			t.Errorf("2 bytes where 1 may come = %v", err)
		}
		end = asked(func() error { _, err := r.get(t.Context(), grpc.MaxCallRecvMsgSize(100)); return err })
		id := s.next().ID
		for range 3 { // without an end
			s.answers <- fastwire.AppendAnswer(nil, fastwire.Answer{ID: id, Message: make([]byte, 60), More: true})
		}
		if err := <-end; status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max (120 vs. 100)") {
			t.Errorf("two pieces of 60 bytes where 100 may come = %v", err)
		}
	})
}

// A server that accepts a stream and sends nothing delays no request for long.
func TestAServerThatDoesNotGreet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		begun := time.Now()
		r.wantCall("without a greeting")
		if took := time.Since(begun); took != answerTimeout {
			t.Errorf("a read waits %v for a stream, want %v", took, answerTimeout)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		_, _ = r.get(ctx)
		r.wantCall("later")
		if took := time.Since(begun); took > answerTimeout+time.Millisecond {
			t.Errorf("later reads wait, too: %v", took)
		}
		s := <-r.streams
		time.Sleep(helloTimeout)
		synctest.Wait()
		if s.ctx.Err() == nil {
			t.Error("the stream is waited for after its time")
		}
	})
}

// The client leaves a member that has lost its leader but still runs, because its writes would fail.
func TestAMemberWithoutALeaderIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		end := asked(func() error { _, err := r.get(t.Context()); return err })
		s := r.accept(1)
		s.answer(s.next().ID, &pb.RangeResponse{})
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		time.Sleep(answerTimeout)
		s.answers <- []byte{0x10, 1} // member 1 answers, and knows no leader
		synctest.Wait()
		r.wantBy(s, "while there is no other")
		synctest.Wait()
		if len(r.streams) != 1 {
			t.Fatalf("%d streams are opened once the member has no leader, want 1", len(r.streams))
		}
		better := r.accept(2)
		synctest.Wait()
		r.wantBy(better, "by a follower's")
		time.Sleep(answerTimeout)
		r.wantBy(better, "by a follower's, again")
		good := r.accept(1)
		synctest.Wait()
		r.wantBy(good, "by the leader's")
	})
}

// A hello that arrives when helloTimeout has just cancelled the stream is too late: the stream cannot carry requests.
func TestALateHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.late = true
		go r.accept(1)
		if s, err := r.client.streams.openStream(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("openStream() = %v, %v, want DeadlineExceeded", s, err)
		}
	})
}

// Requests do not carry the metadata of the client's own context, as calls do not.
func TestAStreamHasNoMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.client.streams.ctx = metadata.AppendToOutgoingContext(r.client.streams.ctx, "x-lease-read", "serializable")
		r.client.streams = newStreamManager(r.client.streams.ctx, r, func() []string { return nil })
		end := asked(func() error { _, err := r.get(t.Context()); return err })
		s := r.accept(1)
		if md, _ := metadata.FromOutgoingContext(s.ctx); len(md) != 0 {
			t.Errorf("the stream is opened with %v, want no metadata", md)
		}
		s.answer(s.next().ID, &pb.RangeResponse{})
		if err := <-end; err != nil {
			t.Fatal(err)
		}
	})
}

// A request with too much metadata is a call: the server would end the stream of all requests.
func TestMuchMetadata(t *testing.T) {
	for name, md := range map[string]metadata.MD{
		"long": {"a": {string(make([]byte, maxRequest))}}, "many": {"a": make([]string, maxRequest/32)},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			end := asked(func() error {
				count, err := r.get(metadata.NewOutgoingContext(t.Context(), md))
				if count != -1 {
					t.Errorf("%s: answered by the stream", name)
				}
				return err
			})
			r.accept(1)
			if err := <-end; err != nil {
				t.Error(err)
			}
		})
	}
}

// counts answers calls with a count.
type counts struct {
	pb.UnimplementedKVServer
	n int64
}

func (c counts) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Count: c.n}, nil
}

// counting starts a server that answers every request with count, by calls and by streams, and
// returns its address.
func counting(t *testing.T, count int64) string {
	t.Helper()
	serve := func(_ any, s grpc.ServerStream) error {
		if err := s.SendMsg(fastwire.Raw(fastwire.AppendMember(nil, 1, 1))); err != nil {
			return err
		}
		data, _ := proto.Marshal(&pb.RangeResponse{Count: count})
		for {
			var m, out fastwire.Raw
			if err := s.RecvMsg(&m); err != nil {
				return err
			}
			err := fastwire.Requests(m, func(b []byte) error {
				var r fastwire.Request
				err := r.Decode(b)
				out = fastwire.AppendAnswer(out, fastwire.Answer{ID: r.ID, Message: data})
				return err
			})
			if err != nil {
				return err
			}
			if err := s.SendMsg(out); err != nil {
				return err
			}
		}
	}
	g := grpc.NewServer(grpc.ForceServerCodecV2(fastwire.NewCodec()))
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: fastwire.Service, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: fastwire.Stream, Handler: serve, ServerStreams: true, ClientStreams: true}},
	}, nil)
	pb.RegisterKVServer(g, counts{n: count})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { _ = g.Serve(l); close(served) }()
	t.Cleanup(func() { g.Stop(); <-served })
	return l.Addr().String()
}

// After SetEndpoints, no request goes to the former endpoints, as with calls: they may belong to
// another cluster.
func TestOtherEndpoints(t *testing.T) {
	first, second := counting(t, 1), counting(t, 2)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{first}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := Use(c); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{1, 2} {
		if i == 1 {
			c.SetEndpoints(second)
		}
		resp, err := c.Get(t.Context(), "k")
		if err != nil || resp.Count != want {
			t.Errorf("a read by way of endpoint %d = %v, %v, want count %d", i+1, resp, err, want)
		}
	}
}
