package fastkv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// kv returns the KV that Use gives to clients.
func (r *rig) kv() *kv {
	return &kv{
		KV: clientv3.NewKVFromKVClient(r.client, nil), client: r.client, calls: clientv3.NewKVFromKVClient(r.byCalls(), nil),
		send: maxRequest, receive: 1000,
	}
}

// outcome describes the result of a get.
func outcome(resp *clientv3.GetResponse, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case resp.Count == -1:
		return "a call"
	case len(resp.Kvs) == 1:
		return string(resp.Kvs[0].GetValue())
	default:
		return "nothing"
	}
}

// The faster path of a get has the same results as the other one.
func TestFastGet(t *testing.T) {
	large := &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Value: make([]byte, 1000)}}}
	two := &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Value: []byte("first")}, {}}, Count: 2, More: true}
	for _, c := range []struct {
		name   string
		answer func(s *served, id uint64)
		want   string
	}{
		{"found", func(s *served, id uint64) {
			s.answer(id, &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Value: []byte("v")}}, Count: 1})
		}, "v"},
		{"not found", func(s *served, id uint64) { s.answer(id, &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 1}}) }, "nothing"},
		{"more than a get gives", func(s *served, id uint64) { s.answer(id, two) }, "nothing"},
		{"Unavailable", func(s *served, id uint64) { s.fail(id, codes.Unavailable, "etcdserver: no leader") }, "a call"},
		{"etcd's error", func(s *served, id uint64) { s.fail(id, codes.ResourceExhausted, "etcdserver: too many requests") }, rpctypes.ErrTooManyRequests.Error()},
		{"too large", func(s *served, id uint64) { s.answer(id, large) }, "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (1006 vs. 1000)"},
		{"the end of the stream", func(s *served, _ uint64) { s.ends <- status.Error(codes.Unavailable, "gone") }, "a call"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			k := r.kv()
			end := asked(func() error {
				if got := outcome(k.Get(t.Context(), "k")); got != c.want {
					t.Errorf("%s: a get gives %q, want %q", c.name, got, c.want)
				}
				return nil
			})
			s := r.accept(1)
			if request := s.next(); string(request.Method) != "Range" || limitOf(t, request) != 0 {
				t.Errorf("%s: the request is %+v", c.name, request)
			}
			c.answer(s, 1)
			if err := <-end; err != nil {
				t.Error(err)
			}
		})
	}
}

// Gets with metadata or options, and invalid ones, take the other path.
func TestGetsOnTheSlowPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		k := r.kv()
		end := asked(func() error {
			_, err := k.Get(metadata.AppendToOutgoingContext(t.Context(), "a", "b"), "k")
			return err
		})
		s := r.accept(1)
		if request := s.next(); len(request.Metadata) != 2 {
			t.Errorf("metadata of a get are %q, want them with it", request.Metadata)
		}
		s.answer(1, &pb.RangeResponse{})
		if err := <-end; err != nil {
			t.Error(err)
		}
		end = asked(func() error { _, err := k.Get(t.Context(), "k", clientv3.WithLimit(7)); return err })
		if request := s.next(); limitOf(t, request) != 7 {
			t.Errorf("the limit of a range is %d, want 7", limitOf(t, request))
		}
		s.answer(2, &pb.RangeResponse{})
		if err := <-end; err != nil {
			t.Error(err)
		}
		for _, key := range []string{"", strings.Repeat("k", maxRequest)} {
			if got := outcome(k.Get(t.Context(), key)); got != "a call" {
				t.Errorf("a get of a key of %d bytes gives %q, want a call", len(key), got)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := k.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a get after its deadline = %v, want the context's error as from clientv3", err)
		}
		<-s.requests
	})
}

// A client's message limits apply to gets on the faster path.
func TestBoundsOfAClient(t *testing.T) {
	for _, c := range []struct{ send, receive, wantSend, wantReceive int }{
		{0, 0, maxRequest, 1<<31 - 1},
		{1000, 2000, 1000, 2000},
	} {
		of, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"127.0.0.1:1"}, MaxCallSendMsgSize: c.send, MaxCallRecvMsgSize: c.receive, Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if send, receive := messageLimits(of); send != c.wantSend || receive != c.wantReceive {
			t.Errorf("bounds %d, %d of a client are %d, %d for gets, want %d, %d", c.send, c.receive, send, receive, c.wantSend, c.wantReceive)
		}
		if err := of.Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// loop is a member without a network. It passes the client's messages to serve.
type loop struct {
	grpc.ClientConnInterface
	serve func(s *looped, message fastwire.Raw) error
}

// NewStream implements grpc.ClientConnInterface.
func (l *loop) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	s := &looped{loop: l, ctx: ctx, answers: make(chan fastwire.Raw, 1000)}
	s.answers <- fastwire.AppendMember(nil, 1, 1)
	return s, nil
}

type looped struct {
	*loop
	grpc.ClientStream
	ctx     context.Context
	answers chan fastwire.Raw
}

// SendMsg implements grpc.ClientStream.
func (s *looped) SendMsg(m any) error { return s.serve(s, m.(fastwire.Raw)) } //nolint:errcheck // it is one

func (s *looped) send(answers fastwire.Raw) {
	select {
	case s.answers <- answers:
	case <-s.ctx.Done():
	}
}

// RecvMsg implements grpc.ClientStream.
func (s *looped) RecvMsg(m any) error {
	select {
	case *m.(*fastwire.Raw) = <-s.answers: //nolint:errcheck // it is one
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// echo answers each request with the same response, at once.
func echo(answer []byte) *loop {
	return &loop{serve: func(s *looped, message fastwire.Raw) error {
		answers := fastwire.AppendMember(nil, 1, 1)
		err := fastwire.Requests(message, func(data []byte) error {
			var r fastwire.Request
			err := r.Decode(data)
			answers = fastwire.AppendAnswer(answers, fastwire.Answer{ID: r.ID, Message: answer})
			return err
		})
		s.send(answers)
		return err
	}}
}

// BenchmarkGet is a get by several clients of one stream, with clientv3 and without network and
// server: a loop answers.
func BenchmarkGet(b *testing.B) {
	resp := &pb.RangeResponse{
		Header: &pb.ResponseHeader{ClusterId: 1 << 60, MemberId: 1 << 61, Revision: 1 << 20, RaftTerm: 5},
		Kvs:    []*mvccpb.KeyValue{{Key: []byte("/bench/00000001"), Value: make([]byte, 128), CreateRevision: 5, ModRevision: 1 << 15, Version: 7}},
		Count:  1,
	}
	answer, err := proto.Marshal(resp)
	if err != nil {
		b.Fatal(err)
	}
	for _, clients := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			kv := benchKV(&client{streams: newStreamManager(ctx, echo(answer), func() []string { return nil })})
			b.ReportAllocs()
			b.SetParallelism((clients + 1) / 2)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if r, err := kv.Get(ctx, "/bench/00000001"); err != nil || len(r.Kvs) != 1 {
						b.Error(err)
					}
				}
			})
		})
	}
}

func benchKV(c *client) clientv3.KV {
	return &kv{KV: clientv3.NewKVFromKVClient(c, nil), client: c, send: maxRequest, receive: 4 << 20}
}
