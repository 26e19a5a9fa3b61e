package fastkv

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// asked runs a request in the background and returns a channel for its error.
func asked(f func() error) <-chan error {
	end := make(chan error, 1)
	go func() { end <- f() }()
	return end
}

// A write that was sent is never repeated, even if its stream ends. One that was not sent is made
// as a call. A read is made as a call in both cases.
func TestAWriteIsNeverRepeated(t *testing.T) {
	for _, name := range []string{"Put", "DeleteRange", "Txn"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			write := r.mutations()[name]
			sent := asked(func() error { return write(t.Context()) })
			s := r.accept(1)
			s.next()
			unsent := asked(func() error { return write(t.Context()) }) // its message is not taken
			synctest.Wait()
			late := asked(func() error { return write(t.Context()) }) // it waits for its message
			synctest.Wait()
			s.ends <- status.Error(codes.Unavailable, "error reading from server: EOF")
			if err := <-sent; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "outcome is unknown") {
				t.Errorf("%s that was sent = %v, want Unavailable, outcome unknown", name, err)
			}
			if err := <-unsent; status.Code(err) != codes.Unavailable {
				t.Errorf("%s that was about to be sent = %v, want Unavailable", name, err)
			}
			if err := <-late; err != nil {
				t.Errorf("%s that was not sent = %v, want it made by a call", name, err)
			}
			if n := r.calls.Load(); n != 1 {
				t.Errorf("%d calls, want 1", n)
			}
		})
	}
}

// A request that the server has not begun, because it is over its budget, is made as a call.
func TestOverBudgetRequestIsMadeAsCall(t *testing.T) {
	for _, name := range []string{"Put", "DeleteRange", "Txn"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			write := r.mutations()[name]
			end := asked(func() error { return write(t.Context()) })
			s := r.accept(1)
			s.fail(s.next().ID, codes.ResourceExhausted, status.Convert(fastwire.OverBudget(9, 7, 8)).Message())
			if err := <-end; err != nil || r.calls.Load() != 1 {
				t.Errorf("%s = %v after %d calls, want it made by one", name, err, r.calls.Load())
			}
			end = asked(func() error { return write(t.Context()) })
			s.fail(s.next().ID, codes.ResourceExhausted, "etcdserver: too many requests")
			if err := <-end; status.Code(err) != codes.ResourceExhausted || r.calls.Load() != 1 {
				t.Errorf("%s = %v after %d calls, want the server's error", name, err, r.calls.Load())
			}
		})
	}
}

func TestAReadIsRepeatedByACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		read := func() error {
			count, err := r.get(t.Context())
			if count != -1 {
				t.Errorf("a read is answered by the stream: %d", count)
			}
			return err
		}
		first := asked(read)
		s := r.accept(1)
		s.fail(s.next().ID, codes.Unavailable, "etcdserver: leader changed")
		if err := <-first; err != nil {
			t.Errorf("a read that became Unavailable = %v", err)
		}
		second := asked(read)
		s.next()
		s.ends <- status.Error(codes.Internal, "whatever")
		if err := <-second; err != nil {
			t.Errorf("a read after the end of its stream = %v", err)
		}
	})
}

// A request carries its method, metadata and remaining time, and its answer is returned.
func TestRequestCarriesMethodMetadataAndTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "hasleader", "true"), time.Minute)
		defer cancel()
		var count int64
		end := asked(func() (err error) { count, err = r.get(ctx); return err })
		s := r.accept(1)
		got := s.next()
		if string(got.Method) != "Range" || len(got.Metadata) != 2 || string(got.Metadata[0]) != "hasleader" || string(got.Metadata[1]) != "true" || got.Timeout != time.Minute {
			t.Errorf("the request is %+v", got)
		}
		s.answer(got.ID, &pb.RangeResponse{Count: 3})
		if err := <-end; err != nil || count != 3 {
			t.Errorf("the answer is %d, %v, want 3", count, err)
		}
		end = asked(func() error { _, err := r.get(t.Context()); return err })
		s.fail(s.next().ID, codes.OutOfRange, "etcdserver: mvcc: required revision is a future revision")
		if st := status.Convert(<-end); st.Code() != codes.OutOfRange || !strings.HasSuffix(st.Message(), "future revision") {
			t.Errorf("the error is %v", st)
		}
	})
}

// Deadlines and cancellations are the client's, and the server is told to cancel.
func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		end := asked(func() error { _, err := r.get(ctx); return err })
		s := r.accept(1)
		got := s.next()
		cancel()
		if err := <-end; status.Code(err) != codes.Canceled {
			t.Errorf("a request that was cancelled = %v", err)
		}
		if told := s.next(); !told.Cancel || told.ID != got.ID {
			t.Errorf("the server is told %+v, want the end of %d", told, got.ID)
		}
		s.answer(got.ID, &pb.RangeResponse{}) // too late, and no harm

		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		end = asked(func() error { _, err := r.get(short); return err })
		s.next()
		if err := <-end; status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a request after its deadline = %v", err)
		}
		if _, err := r.get(short); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a request that begins after its deadline = %v", err)
		}
	})
}

// A call that is cancelled before its message is sent is dropped.
func TestCancelledCallIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		blocks := asked(func() error { _, err := r.get(t.Context()); return err })
		s := r.accept(1)
		synctest.Wait() // its message is being sent
		ctx, cancel := context.WithCancel(t.Context())
		gone := asked(func() error { _, err := r.Put(ctx, &pb.PutRequest{}); return err })
		synctest.Wait()
		stays := asked(func() error { _, err := r.get(t.Context()); return err })
		synctest.Wait()
		cancel()
		if err := <-gone; status.Code(err) != codes.Canceled {
			t.Errorf("a put that was cancelled = %v", err)
		}
		for _, end := range []<-chan error{blocks, stays} {
			got := s.next()
			if string(got.Method) != "Range" {
				t.Errorf("the server gets %q, want what is waited for", got.Method)
			}
			s.answer(got.ID, &pb.RangeResponse{})
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	})
}

// All waiting calls are sent in one message, and answers come in any order.
func TestWaitingCallsShareAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 100
		r := newRig(t)
		first := asked(func() error { _, err := r.get(t.Context()); return err })
		s := r.accept(1)
		synctest.Wait()
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() {
				resp, err := r.Range(t.Context(), &pb.RangeRequest{Limit: int64(i)})
				if err != nil || resp.GetCount() != int64(i) {
					t.Errorf("%d is answered with %v, %v", i, resp, err)
				}
			})
		}
		synctest.Wait()
		s.answer(s.next().ID, &pb.RangeResponse{})
		if err := <-first; err != nil {
			t.Error(err)
		}
		last := s.next()
		if len(s.pending) != many-1 {
			t.Errorf("%d more requests in a message, want %d", len(s.pending), many-1)
		}
		for i := len(s.pending) - 1; i >= 0; i-- {
			s.answer(s.pending[i].ID, &pb.RangeResponse{Count: limitOf(t, s.pending[i])})
		}
		s.answer(last.ID, &pb.RangeResponse{Count: limitOf(t, last)})
		wg.Wait()
	})
}

// Answers come in pieces, mixed with others in the same messages.
func TestPiecesBecomeOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var ends [2]<-chan error
		for i := range ends {
			ends[i] = asked(func() error {
				resp, err := r.Range(t.Context(), &pb.RangeRequest{Limit: int64(i)}, grpc.MaxCallRecvMsgSize(1<<20))
				if want := int64(i) << 40; resp.GetCount() != want {
					t.Errorf("request %d is answered with %d, %v, want %d", i, resp.GetCount(), err, want)
				}
				return err
			})
			synctest.Wait()
		}
		s := r.accept(1)
		one, other := s.next(), s.next()
		if limitOf(t, one) != 0 {
			one, other = other, one
		}
		data := []byte{0x20, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20} // count 1<<40
		m := fastwire.AppendAnswer(nil, fastwire.Answer{ID: other.ID, Message: data[:2], More: true})
		m = fastwire.AppendAnswer(m, fastwire.Answer{ID: one.ID, Message: nil})
		s.answers <- m
		s.answers <- fastwire.AppendAnswer(nil, fastwire.Answer{ID: other.ID, Message: data[2:5], More: true})
		s.answers <- fastwire.AppendAnswer(nil, fastwire.Answer{ID: other.ID, Message: data[5:]})
		for _, end := range ends {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	})
}

// Appending a piece does not overwrite the message of the piece before, which other answers refer to.
func TestPiecesOverwriteNothing(t *testing.T) {
	s := newStream(t.Context(), func() {}, nil)
	var calls [2]*call
	for i := range calls {
		calls[i] = &call{receive: 100, done: make(chan struct{}, 1)}
		s.enqueue(calls[i])
	}
	m := fastwire.AppendAnswer(nil, fastwire.Answer{ID: 1, Message: []byte("ab"), More: true})
	m = fastwire.AppendAnswer(m, fastwire.Answer{ID: 2, Message: []byte("whole")})
	for _, m := range []fastwire.Raw{m, fastwire.AppendAnswer(nil, fastwire.Answer{ID: 1, Message: []byte("cdefghijklmnop")})} {
		if err := s.handleAnswers(m); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := string(calls[0].answer), string(calls[1].answer); a != "abcdefghijklmnop" || b != "whole" {
		t.Errorf("the answers are %q and %q", a, b)
	}
}

func limitOf(t *testing.T, r fastwire.Request) int64 {
	t.Helper()
	in := new(pb.RangeRequest)
	if err := proto.Unmarshal(r.Message, in); err != nil {
		t.Error(err)
	}
	return in.GetLimit()
}

// Use does not silently drop a namespace or another wrapper of the KV: keys would be read and
// written outside it.
func TestUseLosesNoWrapper(t *testing.T) {
	for name, wrap := range map[string]func(clientv3.KV) clientv3.KV{
		"a namespace": func(kv clientv3.KV) clientv3.KV { return namespace.NewKV(kv, "a/") },
		"an order":    func(kv clientv3.KV) clientv3.KV { return ordering.NewKV(kv, nil) },
		"a service":   func(clientv3.KV) clientv3.KV { return clientv3.NewKVFromKVClient(nil, nil) }, // as etcd has it in its own process
		"nothing":     func(clientv3.KV) clientv3.KV { return nil },
	} {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}}) // no server listens there
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		wrapped := wrap(c.KV)
		c.KV = wrapped
		if err := Use(c); err == nil || !strings.Contains(err.Error(), "wrap it after Use") {
			t.Errorf("Use() of a client that has %s around its KV = %v, want an error that says what to do", name, err)
		}
		if c.KV != wrapped {
			t.Errorf("Use() of a client that has %s around its KV has failed, and replaced it by a %T", name, c.KV)
		}
	}
}
