package fastkv

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

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

// wantBy fails unless the next read goes by s.
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

// A server that does not know the service gets calls, writes too: nothing had been sent. It
// is asked again in a while, and not with each request.
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
		time.Sleep(longAgain)
		end := asked(func() error { return r.mutations()["Put"](t.Context()) })
		s := r.accept(1)
		s.answer(s.next().ID, &pb.PutResponse{})
		if err := <-end; err != nil {
			t.Errorf("a put once the server knows the service = %v", err)
		}
	})
}

// A stream that is silent though an answer is due is not used, and another is opened. What
// it carries it may still answer.
func TestASilentStreamIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hangs := asked(func() error { return r.mutations()["Put"](t.Context()) })
		s := r.accept(1)
		put := s.next()
		r.wantBy(s, "a moment later")
		hangs2 := asked(func() error { return r.mutations()["Put"](t.Context()) })
		put2 := s.next()
		time.Sleep(pause - time.Millisecond)
		r.wantBy(s, "just before its time")
		third := asked(func() error { return r.mutations()["Put"](t.Context()) })
		put3 := s.next()
		time.Sleep(pause)
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

// While the member does not lead, others are tried, less and less often, and the stream of
// the one that leads is used; the one before is not ended until it has answered.
func TestTheLeaderIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		put := asked(func() error { return r.mutations()["Put"](t.Context()) })
		s := r.accept(2)
		got := s.next()
		tried := 0
		for range 20 {
			r.wantBy(s, "while it is the best")
			time.Sleep(pause)
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
		time.Sleep(longAgain)
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

// gRPC goes round the endpoints. So each has its turn at once: a client that has just begun
// would else ask a follower for half a second.
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

// What a call alone can do is done by a call.
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

// An answer above the limit fails as that of a call, and no more of it is kept than may be.
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

// A server that accepts a stream and says nothing holds up no request for long.
func TestAServerThatDoesNotGreet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		begun := time.Now()
		r.wantCall("without a greeting")
		if took := time.Since(begun); took != pause {
			t.Errorf("a read waits %v for a stream, want %v", took, pause)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		_, _ = r.get(ctx)
		r.wantCall("later")
		if took := time.Since(begun); took > pause+time.Millisecond {
			t.Errorf("later reads wait, too: %v", took)
		}
		s := <-r.streams
		time.Sleep(greeting)
		synctest.Wait()
		if s.ctx.Err() == nil {
			t.Error("the stream is waited for after its time")
		}
	})
}
